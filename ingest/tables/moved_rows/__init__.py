"""Rows that moved to another key, and what is kept of them until they have come."""
