"""Compaction of one bucket of a primary-key table: levels, picks, merge rewrites (Java mergetree.compact)."""
