"""A catalog that keeps its names in a Hive metastore, as Java Paimon, Spark and Hive find them there."""

from __future__ import annotations
