"""Buckets that are no function of rows, chosen by tasks of Spark: each has the index of its share of a table's keys."""
