"""Figures of the lab."""
