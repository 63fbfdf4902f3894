"""Runs queries and prints their rows as JSON, a query a line: `query.py TABLE SQL...`, where SQL reads `t`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import duckdb


def main(table: str, queries: list[str]) -> None:
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in ("avro", "iceberg"):
        (extension,) = Path(sys.prefix).glob(
            f"lib/python*/site-packages/duckdb_ext/extensions/*/*/{name}.duckdb_extension"
        )
        connection.load_extension(str(extension))
    for query in queries:
        rows = connection.execute(f"with t as (from iceberg_scan('{table}')) {query}").fetchall()
        print(json.dumps(rows, default=str))


main(sys.argv[1], sys.argv[2:])
