"""Figures of results, one family a file; `plots` decides which result has which."""
