"""Finds files and rows that can be skipped because no matching row is in them."""
