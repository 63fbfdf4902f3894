"""Plays a web server: `python files.py 1` and `python files.py 2` write a file of visits."""

from __future__ import annotations

import json
import sys
from pathlib import Path

VISITS = {
    "1": [(1, "/home", 10), (2, "/home", 30), (3, "/cart", 15), (4, "/help", 1), (5, "/home", 5)],
    "2": [(4, "/help", 2), (6, "/cart", 6), (7, "/help", 4)],
}

rows = [{"id": id_, "page": page, "seconds": seconds} for id_, page, seconds in VISITS[sys.argv[1]]]
path = Path("visits") / f"{sys.argv[1]}.json"
path.parent.mkdir(exist_ok=True)
unfinished = path.with_suffix(".part")
unfinished.write_text("".join(json.dumps(row) + "\n" for row in rows))
unfinished.rename(path)  # Spark never sees half a file
print(f"{len(rows)} visits in {path}")
