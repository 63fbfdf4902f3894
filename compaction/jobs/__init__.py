"""Compaction as a job of its own, beside writers: once, or as a service (Java CompactAction)."""
