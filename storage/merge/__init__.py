"""Merges the rows of each key into one row, in columns."""
