"""A catalog that keeps its names in a relational database, in the same tables as Java Paimon."""

from __future__ import annotations
