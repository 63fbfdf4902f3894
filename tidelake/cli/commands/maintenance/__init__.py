"""Commands for maintenance of tables: compaction, expiry, partitions, repairs."""
