"""The Spark sink: `foreachBatch` uses the same writers, with one task per group of buckets, and one commit per batch."""
