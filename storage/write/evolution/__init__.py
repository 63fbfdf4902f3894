"""Rows that have ids, and columns of them in files of their own."""
