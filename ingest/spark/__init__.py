"""The Spark sink: `foreachBatch` drives the same writers, one task a group of buckets, one commit a batch."""
