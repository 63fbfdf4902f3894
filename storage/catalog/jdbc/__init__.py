"""A catalog that keeps its names in a relational database, in the tables that Java Paimon keeps them in."""

from __future__ import annotations
