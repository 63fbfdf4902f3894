"""Writes tables with `bucket = -2`: rows wait in the partition's postpone bucket until a job chooses their buckets."""

from __future__ import annotations
