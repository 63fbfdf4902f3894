"""Which statistics a file gets, and in which form, compared with Java's files."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.files.samples import column_of, options_of, table_schema
from tests.support.cases import GOLDEN_DATABASE, unpack_golden
from tidelake.errors import BadInput
from tidelake.storage.commit.manifests.snapshot_files import live_entries
from tidelake.storage.fileio.local import LocalFileIO
from tidelake.storage.files.bucket_directory import bucket_directory, data_file_path
from tidelake.storage.files.reader import read_data_file
from tidelake.storage.files.stats_collection import MinMaxCollector, StatsCollector, StatsMode, stats_modes
from tidelake.storage.files.writer import RollingFileWriter, file_fields
from tidelake.storage.model.binary_row import decode_rows
from tidelake.storage.model.format import FileSource
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import BYTES, DOUBLE, INT, STRING, ArrayType, DataField, DataType, Root

NONE, COUNTS, FULL = StatsMode(), StatsMode(nulls=True), StatsMode(nulls=True, bounds=True)
CUT_16, CUT_128 = StatsMode(True, True, 16), StatsMode(True, True, 128)


@pytest.mark.parametrize(
    ("text", "mode"),
    [("none", NONE), ("COUNTS", COUNTS), (" full ", FULL), ("truncate(16)", CUT_16), ("TRUNCATE( 128 )", CUT_128)],
)
def test_modes_are_parsed_as_in_java(text: str, mode: StatsMode) -> None:
    assert StatsMode.parse(text) == mode


@pytest.mark.parametrize("text", ["", "some", "truncate", "truncate(0)", "truncate(-1)", "truncate(x)"])
def test_unknown_modes_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match="expected none, counts, full or truncate"):
        StatsMode.parse(text)


COLUMNS = {"id": "INT", "a": "STRING", "b": "INT", "nested": "ARRAY<INT>", "c": "INT"}
DEFAULT = {"_KEY_id": CUT_128, "_SEQUENCE_NUMBER": CUT_128, "_VALUE_KIND": CUT_128}


@pytest.mark.parametrize(
    ("options", "modes"),
    [
        pytest.param({}, {**DEFAULT, "id": CUT_16, "a": CUT_16, "b": CUT_16, "c": CUT_16}, id="the default"),
        pytest.param(
            {"metadata.stats-mode": "counts"}, DEFAULT | dict.fromkeys(("id", "a", "b", "c"), COUNTS), id="counts"
        ),
        pytest.param(
            {"metadata.stats-mode": "none", "fields.b.stats-mode": "full"}, {**DEFAULT, "b": FULL}, id="a column's own"
        ),
        pytest.param(
            {"metadata.stats-mode.per.level": "0:none,5:full"}, DEFAULT, id="a mode for level 0"
        ),
        pytest.param(
            {"metadata.stats-keep-first-n-columns": "2"}, {**DEFAULT, "id": CUT_16, "a": CUT_16}, id="the first two"
        ),
        pytest.param(
            {"metadata.stats-keep-first-n-columns": "1", "fields.c.stats-mode": "full"},
            {**DEFAULT, "id": CUT_16, "c": FULL},
            id="the first, and one with its own mode",
        ),
        pytest.param({"metadata.stats-keep-first-n-columns": "0"}, DEFAULT, id="none of the first"),
        pytest.param(
            {"data-file.thin-mode": "true", "metadata.stats-mode": "none"},
            {"_SEQUENCE_NUMBER": CUT_128, "_VALUE_KIND": CUT_128, "id": CUT_128},
            id="a thin file keeps those of its key",
        ),
    ],
)  # fmt: skip
def test_columns_get_the_same_mode_as_in_java(options: dict[str, str], modes: dict[str, StatsMode]) -> None:
    schema = table_schema(COLUMNS, primary_keys=["id"], options=options)
    context = TableContext(LocalFileIO(), "/nowhere", "d.t", schema, options_of(schema))
    thin = ("id",) if context.options.thin_mode else ()
    found = stats_modes(file_fields(context), context.options, 0, format_name="parquet", thin_keys=thin)
    assert {name: mode for name, mode in found.items() if mode != NONE} == modes


def test_changelog_files_have_their_own_mode() -> None:
    options = {"changelog-file.stats-mode": "none", "metadata.stats-mode": "full"}
    schema = table_schema({"a": "INT"}, options=options)
    modes = [
        stats_modes(schema.fields, options_of(schema), 0, format_name="orc", changelog=changelog)
        for changelog in (True, False)
    ]
    assert modes == [{"a": NONE}, {"a": FULL}]


# ---------------------------------------------------------------- as Java stores them

SAME_AS_JAVA = [
    "types_parquet",
    "pk_dedup_orc",
    "types_nested_orc",
    "types_avro",
    "types_nested_parquet",
    "stats_modes",
    "stats_none",
    "pk_dedup_parquet",
    "pk_double_key",
    "bucket_key_composite",
    "default_values",
    "partition_types",
    "pk_format_per_level",
    "schema_evolution_append",
]


@pytest.mark.parametrize("name", SAME_AS_JAVA)
def test_the_same_rows_get_the_same_metadata_as_in_java(name: str, tmp_path: Path) -> None:
    """Each file of the table is read and written again, then compared with Java's manifest entry."""
    location = str(unpack_golden(f"java/{name}", tmp_path) / f"{GOLDEN_DATABASE}.db" / name)
    latest = TableContext.open(LocalFileIO(), location, name)
    snapshots = latest.snapshots
    (snapshot,) = [snapshots.latest()]
    assert snapshot is not None
    for entry in live_entries(latest, snapshot):
        context = latest.with_schema(latest.schemas.get(entry.file.schema_id))
        directory = bucket_directory(context, entry.partition, entry.bucket)
        fields = file_fields(context)
        rows = read_data_file(context, entry.file, data_file_path(directory, entry.file), fields)
        source = entry.file.file_source or FileSource.APPEND
        writer = RollingFileWriter(context, str(tmp_path / "again"), level=entry.file.level, file_source=source)
        first = None if context.schema.has_primary_key else entry.file.min_sequence_number
        for batch in rows:
            writer.write(batch, first_sequence_number=first)
        (ours,) = writer.close()
        assert differences(facts(ours, context), facts(entry.file, context)) == {}


def facts(file: Any, context: TableContext) -> dict[str, Any]:
    """All that is not of chance, bounds decoded so that a difference can be read."""
    names = context.schema.names if file.value_stats_columns is None else file.value_stats_columns
    return {
        "rows": (file.row_count, file.delete_row_count, file.min_sequence_number, file.max_sequence_number),
        "keys": (file.min_key.hex(), file.max_key.hex()),
        "key stats": bounds(file.key_stats, context.schema.key_fields),
        "value stats": bounds(file.value_stats, context.schema.select(names)),
        "columns": file.value_stats_columns,
        "origin": (file.schema_id, file.level, file.file_source, file.extra_files, file.embedded_index is None),
    }


def differences(ours: dict[str, Any], javas: dict[str, Any]) -> dict[str, Any]:
    """(ours, Java's) of each fact, or column of one, that differs."""
    found = {}
    for name, mine in ours.items():
        if isinstance(mine, dict):
            inner = differences(mine, javas[name])
            found.update({f"{name}, {key}": both for key, both in inner.items()})
        elif mine != javas[name]:
            found[name] = (mine, javas[name])
    return found


def bounds(stats: Any, fields: Any) -> dict[str, Any]:
    if not fields:
        return {"bytes": (stats.min_values.hex(), stats.max_values.hex()), "nulls": stats.null_counts}
    types = [f.type for f in fields]
    low, high = (decode_rows([row], types) for row in (stats.min_values, stats.max_values))
    known = zip(fields, low, high, stats.null_counts, strict=True)
    return {f.name: (str(a[0]), str(b[0]), nulls) for f, a, b, nulls in known if not has_more_here(f.type)}


def has_more_here(data_type: DataType) -> bool:
    """Java has no bounds of times finer than a microsecond, nor of bytes in ORC files; they have here."""
    is_fine = "(9)" in str(data_type) and "TIMESTAMP" in str(data_type)
    return is_fine or data_type.root in (Root.BINARY, Root.VARBINARY)


# ---------------------------------------------------------------- what is always true

VALUES = {
    "INT": (INT, st.integers(-(2**31), 2**31 - 1)),
    "STRING": (STRING, st.text(max_size=40)),
    "BYTES": (BYTES, st.binary(max_size=40)),
    "DOUBLE": (DOUBLE, st.floats()),
}


ORDER: dict[str, Callable[[Any], Any]] = {
    "STRING": str.encode,
    "DOUBLE": lambda value: (1, 0, 0) if math.isnan(value) else (0, value, math.copysign(1, value)),
}


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("mode", [FULL, StatsMode(True, True, 1), CUT_16], ids=["full", "truncate(1)", "truncate(16)"])
@given(data=st.data())
def test_truncated_bounds_include_all_values(kind: str, mode: StatsMode, data: st.DataObject) -> None:
    data_type, strategy = VALUES[kind]
    values = data.draw(st.lists(st.one_of(st.none(), strategy), max_size=20))
    field = DataField(0, "c", data_type)
    batch = pa.RecordBatch.from_arrays([column_of(data_type, values)], names=["c"])
    collector = StatsCollector([field], {"c": mode})
    min_max = MinMaxCollector(collector.bounds_for)
    for part in (batch.slice(0, 7), batch.slice(7)):
        collector.add(part)
        min_max.add(part)
    stats = collector.of_columns(["c"], min_max.min_max())
    low, high = (decode_rows([row], [data_type])[0][0] for row in (stats.min_values, stats.max_values))
    assert stats.null_counts == (values.count(None),)
    if low.is_valid and high.is_valid:
        order = ORDER.get(kind, lambda value: value)
        assert all(order(low.as_py()) <= order(v) <= order(high.as_py()) for v in values if v is not None)
        assert mode.length is None or kind in ("INT", "DOUBLE") or len(low.as_py()) <= mode.length
    else:
        assert not low.is_valid
        assert not high.is_valid


def test_dense_statistics_omit_columns_without_statistics() -> None:
    fields = [DataField(0, "a", INT), DataField(1, "n", ArrayType(INT)), DataField(2, "b", INT)]
    collector = StatsCollector(fields, {"a": COUNTS, "n": NONE, "b": FULL})
    dense, columns = collector.of_table(["a", "n", "b"], {}, dense=True)
    assert (columns, dense.null_counts) == (("a", "b"), (0, 0))
    whole, columns = collector.of_table(["a", "n", "b"], {}, dense=False)
    assert (columns, whole.null_counts) == (None, (0, None, 0))
    assert collector.of_table(["a", "b"], {}, dense=True)[1] is None
    assert collector.of_table(["n"], {}, dense=True) == (collector.of_columns([], {}), ())
