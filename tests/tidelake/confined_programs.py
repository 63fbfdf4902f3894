"""Programs that tests/tidelake/test_bad_disks.py runs on full or read-only disks. They print the result as JSON.

usage: python -m tests.tidelake.confined_programs FOLDER full|readonly|unreadable|expire|ingest
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

import tidelake
from tidelake.cli.program import main
from tidelake.ingest.sources.change_log_folder import ChangeLogFolder
from tidelake.storage.maintenance.verify import verify
from tidelake.storage.merge.spill_folder import FOLDERS

NAME: Final = "shop.orders"
SCHEMA: Final = pa.schema([("id", pa.int64()), ("text", pa.string())])
PAGE_BYTES: Final = 4096


def error_of(do: Callable[[], object]) -> str | None:
    """Type and message of the raised error; None without an error."""
    try:
        do()
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    return None


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def full(folder: Path) -> list[dict[str, Any]]:
    """One commit a time, with so many pages of the disk free; then again with room. What happened, each time."""
    catalog = tidelake.open_catalog(str(folder / "lake"))
    catalog.create_database("shop")
    options = {"write-only": "true", "commit.max-retries": "1", "commit.min-retry-wait": "1 ms"}
    table = catalog.create_table(NAME, SCHEMA, primary_key=["id"], options=options)
    found = []
    for number, pages in enumerate([0, 1, 2, 3, 4, 5, 6, 7, 8, 60], 1):
        before = files_below(folder)
        with ballast(folder / "ballast", pages * PAGE_BYTES):
            error = error_of(lambda number=number: commit_row(table, number))  # type: ignore[misc]
            snapshots = [snapshot.id for snapshot in table.snapshots()]
            rows = table.scan().to_arrow().num_rows
        found.append(
            {
                "error": error,
                "snapshots": snapshots,
                "rows": rows,
                "left_over": sorted(set(files_below(folder)) - set(before)) if error else [],
                "again": commit_row(table, number) if error else None,
                "seen": sorted(table.scan(columns=["id"]).to_arrow()["id"].to_pylist()),
            }
        )
    return found


def commit_row(table: tidelake.Table, number: int) -> int | None:
    with table.writer(commit_user="etl") as writer:
        writer.write(pa.table({"id": [number], "text": ["x" * number]}))
        return writer.commit(number)


def expire(folder: Path) -> dict[str, Any]:
    """`table expire` of ten snapshots on a disk without a free page; with the hint LATEST and without."""
    warehouse = str(folder / "lake")
    catalog = tidelake.open_catalog(warehouse)
    catalog.create_database("shop")
    found = {}
    for name, has_latest in (("with", True), ("without", False)):
        table = catalog.create_table(f"shop.{name}", SCHEMA, primary_key=["id"], options={"write-only": "true"})
        for number in range(1, 11):
            commit_row(table, number)
        if not has_latest:
            Path(table.location, "snapshot", "LATEST").unlink()
        with ballast(folder / "ballast", 0):
            full = error_of(lambda table=table: commit_row(table, 11))  # type: ignore[misc]
            retained = ["--retain-max", "2", "--retain-min", "1"]
            shown = run_cli(["table", "expire", f"shop.{name}", *retained, "-w", warehouse])
            found[name] = {
                "full": full,
                **shown,
                "snapshots": [snapshot.id for snapshot in table.snapshots()],
                "rows": table.scan().to_arrow().num_rows,
                "hints": {
                    path.name: path.read_text()
                    for path in Path(table.location, "snapshot").iterdir()
                    if path.name.isupper()
                },
                "problems": [str(finding) for finding in verify(table.context, deep=True)],
            }
    return found


def ingest(folder: Path) -> dict[str, Any]:
    """The output of `ingest run` on a disk that fills up, and its result once space is available."""
    log = folder / "log"
    log.mkdir()
    line = {"topic": "log", "partition": 0, "timestamp": 0, "key": None, "headers": []}
    source = {"db": "shop", "schema": "public", "table": "orders"}
    rows = [{"op": "c", "before": None, "after": {"id": n, "text": "x"}, "source": source} for n in range(20)]
    lines = [json.dumps({**line, "offset": n, "value": json.dumps(row)}) for n, row in enumerate(rows)]
    (log / "0.jsonl").write_text("\n".join(lines) + "\n")
    warehouse = str(folder / "lake")
    catalog = tidelake.open_catalog(warehouse)
    catalog.create_database("shop")
    options = {"commit.max-retries": "1", "commit.min-retry-wait": "1 ms", "bucket": "1"}
    catalog.create_table(NAME, SCHEMA, primary_key=["id"], options=options)
    config = folder / "shop.yaml"
    config.write_text(
        f"warehouse: {warehouse}\nsource: {{type: change-log-folder, path: {log}, until: end}}\n"
        f"tables: [{{name: {NAME}, match: public.orders}}]\n"
    )
    found = {}
    for pages in (1, 4, 6, 7, 8):
        with ballast(folder / "ballast", pages * PAGE_BYTES):
            found[str(pages)] = run_cli(["ingest", "run", str(config)])
    found["with room"] = run_cli(["ingest", "run", str(config)])
    found["rows"] = catalog.table(NAME).scan().to_arrow().num_rows
    return found


@contextlib.contextmanager
def ballast(path: Path, free_bytes: int) -> Iterator[None]:
    """A file that fills the disk but for so many bytes."""
    space = os.statvfs(path.parent)
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, space.f_bavail * space.f_frsize - free_bytes)
    yield
    path.unlink()


def follow_two(table: tidelake.Table) -> None:
    """That the first was read is kept when the second is asked for."""
    changes = table.follow(start="earliest", consumer="c")
    next(changes)
    next(changes)


def readonly(folder: Path) -> dict[str, Any]:
    """The error of each operation on a table in a read-only place."""
    warehouse = str(folder / "lake")
    catalog = tidelake.open_catalog(warehouse)
    table = catalog.table(NAME)

    def write() -> None:
        with table.writer(commit_user="etl") as writer:
            writer.write(pa.table({"id": [2], "text": ["b"]}))
            writer.commit(2)

    def command(*arguments: str) -> dict[str, Any]:
        return run_cli([*arguments, "--warehouse", warehouse])

    return {
        "scan": table.scan().to_arrow().to_pylist(),
        "changes": [batch.rows.num_rows for batch in table.changes(start=1)],
        "errors": {
            "write": error_of(write),
            "create a table": error_of(lambda: catalog.create_table("shop.new", SCHEMA)),
            "create a database": error_of(lambda: catalog.create_database("new")),
            "alter": error_of(lambda: catalog.alter_table(NAME, [tidelake.AddColumn("more", "INT")])),
            "rename": error_of(lambda: catalog.rename_table(NAME, "shop.renamed")),
            "drop": error_of(lambda: catalog.drop_table(NAME)),
            "follow as a consumer": error_of(lambda: follow_two(table)),
            "spill": error_of(lambda: spill(warehouse)),
        },
        "commands": {
            "scan": command("table", "scan", NAME),
            "create": command("table", "create", "shop.new", "--column", "id:INT"),
            "drop": command("table", "drop", NAME, "--yes"),
            "ingest": run_cli(["ingest", "run", str(folder / "pipeline.yaml")]),
        },
    }


def run_cli(arguments: list[str]) -> dict[str, Any]:
    """What the command line makes of it."""
    with contextlib.redirect_stderr(io.StringIO()) as err, contextlib.redirect_stdout(io.StringIO()):
        code = int(main(arguments))
    return {"code": code, "err": err.getvalue()}


def spill(directory: str) -> None:
    FOLDERS.new_file(directory)


def unreadable(folder: Path) -> dict[str, Any]:
    """What each operation says of files that may not be read."""

    async def read_folder() -> None:
        source = ChangeLogFolder(folder / "changes", follow=False, kept_headers=frozenset())
        await source.open()
        async for _ in source.read({}):
            pass

    return {
        "table": error_of(lambda: tidelake.open_catalog(str(folder / "lake")).table(NAME).scan().to_arrow()),
        "change log": error_of(lambda: asyncio.run(read_folder())),
        "command": run_cli(["table", "scan", NAME, "--warehouse", str(folder / "lake")]),
    }


if __name__ == "__main__":
    program: Any = {"full": full, "readonly": readonly, "unreadable": unreadable, "expire": expire, "ingest": ingest}[
        sys.argv[2]
    ]
    json.dump(program(Path(sys.argv[1])), sys.stdout)
