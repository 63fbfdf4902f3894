"""Compaction: reduces the number of sorted runs, and produces the changelog of that."""
