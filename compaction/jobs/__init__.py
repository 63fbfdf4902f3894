"""Compaction as a job of its own, while writers continue: once, or as a service (Java CompactAction)."""
