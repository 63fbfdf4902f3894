"""Searches the index: `python search.py wool`."""

from __future__ import annotations

import sqlite3
import sys

index = sqlite3.connect("index.db")
query = "SELECT rowid, name, description FROM products WHERE products MATCH ? ORDER BY rowid"
for number, name, description in index.execute(query, [" ".join(sys.argv[1:])]):
    print(f"{number}  {name}: {description}")
