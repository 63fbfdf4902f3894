"""A reader of changes with its own store, to be killed: `python -m tests.crash.reader LAKE NAME STORE CONSUMER`.

It stores the ids that were inserted together with its position, a line a batch, and goes on from the last whole line.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import tidelake


class Store:
    """A file of lines `[position, ids]`. A line that broke off was never written."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> tuple[str | None, list[int]]:
        """The position behind all that is there, None before the first line; and the ids."""
        lines = [json.loads(line) for line in self._whole_lines().splitlines()]
        return (lines[-1][0] if lines else None), [number for line in lines for number in line[1]]

    def drop_broken_line(self) -> None:
        """Before it is appended to."""
        self._path.write_bytes(self._whole_lines())

    def _whole_lines(self) -> bytes:
        data = self._path.read_bytes() if self._path.exists() else b""
        return data[: data.rfind(b"\n") + 1]

    def append(self, change: tidelake.ChangeBatch) -> None:
        line = json.dumps([str(change.position), change.rows["id"].to_pylist()])
        with self._path.open("a") as file:
            file.write(line + "\n")


def main() -> None:
    warehouse, name, store_path, consumer = sys.argv[1:]
    store = Store(Path(store_path))
    store.drop_broken_line()
    position, _ = store.read()
    table = tidelake.open_catalog(warehouse).table(name, {"continuous.discovery-interval": "20 ms"})
    for change in table.follow(start=position or "earliest", consumer=consumer):
        store.append(change)


if __name__ == "__main__":
    main()
