"""Commands that look after tables: compaction, expiry, partitions, repairs."""
