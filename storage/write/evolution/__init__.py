"""Writes rows with row ids, and their columns in separate files."""
