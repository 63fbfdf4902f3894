"""Definitions of all options, by subject. The order of families matters: the first one that matches a key is used."""

from __future__ import annotations
