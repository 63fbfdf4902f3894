"""Compaction: fewer sorted runs, and the changelog that comes of it."""
