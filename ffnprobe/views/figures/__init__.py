"""Figures of results, one family per file; `plots` assigns them to result types."""
