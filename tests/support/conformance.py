"""Records which reader read which kind of table, for the page docs/conformance.md. See `make conformance`.

Tests compare what other readers read; here their calls are noted down as properties of the test, which end in JUnit's
report. A read counts as `pass` if the test passes and nobody said otherwise. With TIDELAKE_CONFORMANCE=1 only: each
record opens the table once more.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import pytest

import tidelake
from tidelake.errors import TidelakeError
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField

SWITCH: Final = "TIDELAKE_CONFORMANCE"
PROPERTY: Final = "conformance"
_JAVA_USERS: Final = frozenset({"java", "compactor", "oracle"})  # commit users of the oracle
_INDEX: Final = "file-index."


class Outcome(StrEnum):
    """What became of a read, from best to worst."""

    PASS = "pass"
    REFUSED = "refused"
    DIFFERS = "differs"


@dataclass(frozen=True)
class Reading:
    """reader: who read. writer: whose table it was. reason: why the outcome is what it is, if the test knows.

    engine, formats, types, indexes, buckets: of the table.
    """

    reader: str
    writer: str
    outcome: str
    engine: str
    formats: Sequence[str]
    types: Sequence[str]
    indexes: Sequence[str]
    buckets: str
    reason: str = ""

    def to_text(self) -> str:
        return json.dumps(asdict(self), sort_keys=True, ensure_ascii=False)


class _Current:
    """The test that runs in this process."""

    item: pytest.Item | None = None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _Current.item = item
    try:
        return (yield)
    finally:
        _Current.item = None


def record(
    reader: str,
    warehouse: Path | str,
    table: str,
    outcome: Outcome = Outcome.PASS,
    *,
    writer: str = "Tidelake",
    reason: str = "",
) -> None:
    """Note a read down. A table that we can't open, and one that only Java wrote, is left out.

    warehouse: a folder. table: its name, or the folder of a table below it.
    """
    if not os.environ.get(SWITCH) or _Current.item is None or not Path(warehouse).is_dir():
        return
    with suppress(TidelakeError):
        context = tidelake.open_catalog(str(warehouse)).table(table.partition("$")[0]).context
        if writer == "Tidelake" and not _is_ours(context):
            return
        reading = Reading(
            str(reader),
            writer,
            outcome.value,
            engine_of(context),
            formats_of(context),
            sorted({text for field in context.schema.fields for text in types_of(field)}),
            indexes_of(context),
            buckets_of(context),
            reason,
        )
        note = (PROPERTY, reading.to_text())
        if note not in _Current.item.user_properties:
            _Current.item.user_properties.append(note)


def _is_ours(context: TableContext) -> bool:
    latest = context.snapshots.latest_id() or 0
    found = (context.snapshots.find(number) for number in range(1, latest + 1))
    return any(snapshot is not None and snapshot.commit_user not in _JAVA_USERS for snapshot in found)


def engine_of(context: TableContext) -> str:
    options = context.schema.options
    return options.get("merge-engine", "deduplicate") if context.schema.has_primary_key else "append table"


def formats_of(context: TableContext) -> list[str]:
    options = context.schema.options
    levels = [one.partition(":")[2] for one in options.get("file.format.per.level", "").split(",") if one]
    return sorted({options.get("file.format", "parquet"), *levels})


def types_of(field: DataField) -> list[str]:
    """The words of a column's type: that of a nested type, and those of what it contains."""
    text = str(field.type).removesuffix(" NOT NULL")
    word = text.partition("<")[0].partition("(")[0]
    if word.startswith("TIMESTAMP"):
        digits = text.partition("(")[2].partition(")")[0] or "6"
        zone = " WITH LOCAL TIME ZONE" if "LOCAL TIME ZONE" in text or word == "TIMESTAMP_LTZ" else ""
        return [f"TIMESTAMP({digits}){zone}"]
    return [word]


def indexes_of(context: TableContext) -> list[str]:
    """Indexes and deletion vectors of a table: what a reader may have to open beside the data files."""
    options = context.schema.options
    found = {key.removeprefix(_INDEX).partition(".")[0] for key in options if key.startswith(_INDEX)}
    found -= {"in-manifest-threshold", "read"}
    if options.get("deletion-vectors.enabled") == "true":
        is_64 = options.get("deletion-vectors.bitmap64") == "true"
        found.add("deletion vectors, 64 bits" if is_64 else "deletion vectors")
    return sorted(found or {"none"})


def buckets_of(context: TableContext) -> str:
    bucket = context.schema.options.get("bucket", "-1")
    if bucket == "-2":
        return "postponed"
    if bucket != "-1":
        return "fixed"
    return "dynamic" if context.schema.has_primary_key else "none"
