"""Tables with `bucket = -2`: rows wait in one directory of a partition until a job knows how many buckets they need."""

from __future__ import annotations
