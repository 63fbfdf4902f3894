"""Compaction of append tables: small files are joined, rows are sorted or clustered (Java package append)."""
