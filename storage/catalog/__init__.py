"""Catalogs: the databases and tables that exist, and where they are stored."""

from __future__ import annotations
