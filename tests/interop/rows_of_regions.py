"""A small table whose key a rewrite widens by a column that the key decides."""

from __future__ import annotations

from tidelake import UpdatePrimaryKey

NAME = "db.t"
COLUMNS: list[dict[str, object]] = [
    {"name": "id", "type": "INT", "nullable": False},
    {"name": "region", "type": "STRING"},
    {"name": "v", "type": "STRING"},
]
KEY = UpdatePrimaryKey(("id", "region"))


def row(key: int, v: str) -> dict[str, object]:
    return {"id": key, "region": f"süd{key % 3}", "v": v}
