"""A catalog that is a server: it knows the tables, changes their schemas, and decides which snapshot is the next."""

from __future__ import annotations
