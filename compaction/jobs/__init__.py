"""Dedicated compaction jobs, which run while writers continue: once, or as a service (Java CompactAction)."""
