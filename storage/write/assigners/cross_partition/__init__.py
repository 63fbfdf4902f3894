"""Assigns buckets for `bucket = -1` with a primary key that lacks a partition column: keys move between partitions."""
