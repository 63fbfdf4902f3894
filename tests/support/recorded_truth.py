"""The recordings as tables: what to create, how to decode, and the expected rows at the end.

    @pytest.mark.parametrize("recorded", RECORDED_TABLES, ids=lambda recorded: recorded.id)
        ... create recorded.schema with recorded.primary_key, ingest recorded.files, read the table ...
        assert differences(recorded, table) == []

Captures, variants and tables are what lies in the folder of TIDELAKE_RECORDED. The truth is what the database printed
(`expected.json`), but for what `unrecoverable.json` beside it tells.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tests.support.cases import TESTS, NotUnderstood, recorded_folder, truth_in
from tests.support.database_text import comparable, same_value
from tests.support.recorded_columns import INTEGER, UNSIGNED_BIGINT, column_type, source_type
from tests.support.recorded_wire import Seen, connector, format_settings, seen_in, wire_of
from tests.support.schema_registry import schema_registry
from tests.support.unrecoverable import FILE, Unrecoverable, unrecoverable

Row = Mapping[str, Any]
TOPIC_SUFFIX: Final = ".jsonl.zst"
_LARGE_BYTES: Final = 2_000_000  # compressed


@dataclass(frozen=True)
class RecordedTable:
    """One source table of one variant. Its members are read from the capture on demand.

    folder: the capture's. variant: None if the topics are in the capture's folder itself.
    source_name: as in expected.json. name: of the table in the lake, one of its own in the capture.
    """

    folder: Path
    variant: str | None
    source_name: str
    name: str

    @property
    def capture(self) -> str:
        return self.folder.name

    @property
    def id(self) -> str:
        return "/".join(part for part in (self.capture, self.variant, self.name) if part)

    @cached_property
    def connector(self) -> Mapping[str, str]:
        """The connector's settings. Raises NotUnderstood for a variant that nothing explains."""
        return connector(self.folder, self.variant)

    @property
    def variant_folder(self) -> Path:
        """The folder of the variant's topics, including those without a table."""
        return self.folder / (self.variant or "")

    @cached_property
    def files(self) -> list[Path]:
        """The topic that has the table's name behind its prefix; none if no record of the table was ever sent."""
        end = "." + re.sub(r"[^A-Za-z0-9._-]", "_", self.source_name)  # as Debezium names topics
        found = sorted(self.variant_folder.glob(f"*{TOPIC_SUFFIX}"))
        return [path for path in found if path.name.removesuffix(TOPIC_SUFFIX).endswith(end)]

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(path.name.removesuffix(TOPIC_SUFFIX) for path in self.files)

    @property
    def format(self) -> str:
        return "debezium-json" if self.schemas is None else "debezium-avro"

    @cached_property
    def schemas(self) -> Path | None:
        """The registry's schemas, where the records are in Avro."""
        path = self.variant_folder / "schemas.json"
        return path if path.exists() else None

    @property
    def is_large(self) -> bool:
        """Whether to read it takes seconds."""
        return sum(path.stat().st_size for path in self.files) > _LARGE_BYTES

    @cached_property
    def truth(self) -> Mapping[str, Any]:
        """`primary_key`, `columns` (name, type, nullable) and `rows` of the source table at the end."""
        table: Mapping[str, Any] = truth_in(self.folder)["tables"][self.source_name]
        return table

    @property
    def primary_key(self) -> tuple[str, ...]:
        return tuple(self.truth["primary_key"])

    @property
    def types(self) -> dict[str, str]:
        """The database's types, by column."""
        return {column["name"]: column["type"] for column in self.truth["columns"]}

    @cached_property
    def seen(self) -> Seen:
        return seen_in(self.files, self.schemas)

    @property
    def truncates(self) -> bool:
        return self.seen.truncates > 0

    @cached_property
    def schema(self) -> pa.Schema:
        """The source's columns at the end, then those that records have besides (dropped, renamed) as texts.

        NOT NULL are those that the source says so of, and that no record lacks. An integer column that bore texts under
        the same name before is a text.
        """
        wire, seen = wire_of(self.connector), self.seen
        fields = []
        for column in self.truth["columns"]:
            name, type_ = column["name"], column["type"]
            was_text = re.fullmatch(INTEGER, type_) and not re.fullmatch(UNSIGNED_BIGINT, type_)
            was_text = was_text and '"' in seen.columns.get(name, ())
            nullable = column["nullable"] or name not in (seen.in_all or ())
            fields.append(pa.field(name, pa.string() if was_text else column_type(type_, wire), nullable))
        gone = [name for name in seen.columns if name not in self.types]
        return pa.schema([*fields, *(pa.field(name, pa.string()) for name in gone)])

    @property
    def source_types(self) -> dict[str, str]:
        """`Target.source_types`: what the records don't say."""
        wire = wire_of(self.connector)
        declared = {name: source_type(type_, wire) for name, type_ in self.types.items() if name in self.seen.columns}
        return {name: word for name, word in declared.items() if word is not None}

    @property
    def connector_settings(self) -> dict[str, str]:
        return format_settings(self.connector)

    @cached_property
    def unrecoverable(self) -> Sequence[Unrecoverable]:
        """Of a capture that is a copy of one of ours and has no such file: as ours."""
        return unrecoverable(_with_remarks(self.folder), self.source_name, self.variant)


@contextmanager
def format_options_for(recorded: RecordedTable) -> Iterator[dict[str, str]]:
    """`format_options` for its records, including a schema registry if they need one."""
    with schema_registry(recorded.schemas) as registry:
        of_registry = {} if recorded.schemas is None else {"schema_registry_url": registry.url}
        yield {**recorded.connector_settings, **of_registry}


# ---------------------------------------------------------------- the recordings


def recorded_tables(top: Path) -> Iterator[RecordedTable]:
    """Every table of every variant of every capture in a folder: its sub-folders with an `expected.json`."""
    for folder in sorted(path for path in top.iterdir() if path.is_dir()):
        if any(folder.glob("expected.json*")):
            names = _lake_names(list(truth_in(folder)["tables"]))
            for variant in _variants(folder):
                for source_name, name in names.items():
                    yield RecordedTable(folder, variant, source_name, name)


def _variants(capture: Path) -> list[str | None]:
    found: list[str | None] = [None] if any(capture.glob(f"*{TOPIC_SUFFIX}")) else []
    found += sorted(path.name for path in capture.iterdir() if path.is_dir())
    if not found:
        raise NotUnderstood(f"capture {capture} has neither variants nor topics (*{TOPIC_SUFFIX})")
    return found


def _lake_names(source_names: Sequence[str]) -> dict[str, str]:
    """Without the schema, where that leaves no two alike."""
    short = {name: re.sub(r"\W", "_", name.rpartition(".")[2]) for name in source_names}
    times = Counter(short.values())
    return {name: short[name] if times[short[name]] == 1 else re.sub(r"\W", "_", name) for name in source_names}


def _with_remarks(capture: Path) -> Path:
    """The folder whose `unrecoverable.json` speaks of a capture."""
    if not (capture / FILE).exists():
        for own in sorted((TESTS / "recorded").iterdir()):
            if (own / FILE).exists() and truth_in(own)["tables"] == truth_in(capture)["tables"]:
                return own
    return capture


RECORDED_TABLES: Final[tuple[RecordedTable, ...]] = tuple(recorded_tables(recorded_folder()))


def own_recorded(id_: str) -> RecordedTable:
    """A table of tests/recorded, whatever the hook says: `pg-shop/json-plain/orders`."""
    (found,) = (recorded for recorded in _own_tables() if recorded.id == id_)
    return found


def own_tables(capture: str, variant: str) -> list[RecordedTable]:
    """The tables of a variant in tests/recorded, whatever the hook says."""
    return [recorded for recorded in _own_tables() if (recorded.capture, recorded.variant) == (capture, variant)]


@cache
def _own_tables() -> tuple[RecordedTable, ...]:
    return tuple(recorded_tables(TESTS / "recorded"))


# ---------------------------------------------------------------- comparison


def differences(
    recorded: RecordedTable,
    held: pa.Table,
    excused: Counter[str] | None = None,
    *,
    are_truncates_skipped: bool = False,
) -> list[str]:
    """What is wrong with a table's final rows, in words; empty when they are the truth.

    held: all columns of `recorded.types`, others are passed over; any order of rows. A column that no record has ever
    had may be absent, and counts as null. excused: counts what `unrecoverable.json` explains, by column ("" are rows).
    are_truncates_skipped: then the table also holds what was there before.
    """
    excused = Counter() if excused is None else excused
    printed_rows = [dict(zip(recorded.types, row, strict=True)) for row in recorded.truth["rows"]]
    held_rows = [{**dict.fromkeys(recorded.types), **row} for row in rows_of(held)]
    holds_truncated = are_truncates_skipped and recorded.truncates
    if not recorded.primary_key:
        may_hold_more = holds_truncated or _excuses(recorded, None, ())
        return _differences_without_key(recorded, printed_rows, held_rows, excused, may_hold_more=may_hold_more)
    by_key = {_comparable_key(recorded, row): row for row in held_rows}
    found = [] if len(by_key) == len(held_rows) else [f"{len(held_rows) - len(by_key)} keys occur twice"]
    for printed in printed_rows:
        row = by_key.pop(_comparable_key(recorded, printed), None)
        if row is not None:
            found += _cell_differences(recorded, printed, row, excused)
        elif _excuses(recorded, None, _key(recorded, printed)):
            excused[""] += 1
        else:
            found.append(f"row missing: {_named(printed, recorded.primary_key)}")
    for row in by_key.values():
        if holds_truncated or _excuses(recorded, None, tuple(str(row[name]) for name in recorded.primary_key)):
            excused[""] += 1
        else:
            found.append(f"row too many: {_named(row, recorded.primary_key)}")
    return found


def rows_of(table: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as dicts, timestamps as microseconds since 1970: Python knows no year before 1 or after 9999, Arrow does."""
    columns = [
        column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        if pa.types.is_timestamp(column.type)
        else column
        for column in table.columns
    ]
    rows: list[dict[str, Any]] = pa.Table.from_arrays(columns, table.schema.names).to_pylist()
    return rows


def _comparable_key(recorded: RecordedTable, row: Row) -> tuple[Any, ...]:
    return tuple(comparable(recorded.types[name], row[name]) for name in recorded.primary_key)


def _key(recorded: RecordedTable, printed: Row) -> tuple[str, ...]:
    return tuple(printed[name] for name in recorded.primary_key)


def _excuses(
    recorded: RecordedTable, column: str | None, key: tuple[str, ...], database_type: str = "", cell: Any = None
) -> bool:
    return any(entry.excuses(column, key, database_type, cell) for entry in recorded.unrecoverable)


def _cell_differences(recorded: RecordedTable, printed: Row, row: Row, excused: Counter[str]) -> list[str]:
    found = []
    for column, database_type in recorded.types.items():
        if same_value(database_type, printed[column], row[column]):
            continue
        if _excuses(recorded, column, _key(recorded, printed), database_type, row[column]):
            excused[column] += 1
        else:
            where = _named(printed, recorded.primary_key)
            found.append(f"{where}: {column} is {row[column]!r}, not {printed[column]!r}")
    return found


def _differences_without_key(
    recorded: RecordedTable,
    printed_rows: Sequence[Row],
    held_rows: Sequence[Row],
    excused: Counter[str],
    *,
    may_hold_more: bool,
) -> list[str]:
    """may_hold_more: truncates are skipped, or were never sent: the table has as many rows as were ever created."""
    left = list(held_rows)
    found = []
    for printed in printed_rows:
        types = recorded.types.items()
        equal = next((r for r in left if all(same_value(type_, printed[c], r[c]) for c, type_ in types)), None)
        if equal is None:
            found.append(f"row missing: {printed}")
        else:
            left.remove(equal)
    if left and may_hold_more:
        excused[""] += len(left)
        if len(held_rows) != recorded.seen.rows:
            found.append(f"{len(held_rows)} rows of {recorded.seen.rows} created ones")
        return found
    return found + [f"row too many: {row}" for row in left]


def _named(printed: Row, primary_key: Sequence[str]) -> str:
    return ", ".join(f"{name}={printed[name]}" for name in primary_key)
