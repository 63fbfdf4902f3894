"""A catalog on a server. The server knows the tables, changes their schemas, and decides which snapshot is next."""

from __future__ import annotations
