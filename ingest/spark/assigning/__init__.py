"""Spark tasks that assign buckets with an index. Each task has the index of its share of a table's keys."""
