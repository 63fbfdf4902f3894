"""The Spark sink: `foreachBatch` uses the same writers, with a task per group of buckets, and a commit per batch."""
