"""A catalog that keeps its names in a Hive metastore, where Java Paimon, Spark and Hive find them, too."""

from __future__ import annotations
