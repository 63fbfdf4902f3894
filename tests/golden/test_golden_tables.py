"""Tables of Java Paimon and pypaimon are read with exactly the rows that their writers read, or are refused with an
error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import tidelake
from tests.support.cases import GOLDEN_DATABASE, GoldenTable, golden_expected, golden_tables, is_overridden
from tests.support.conformance import Outcome, record
from tests.support.expected import changes_difference, difference
from tidelake.verification import inspect_table

# What this release reads. A table moves here when its feature arrives.
READ: Final = frozenset(
    {
        "pypaimon/append_deletion_vectors",
        "pypaimon/append_data_evolution",
        "java/types_blob",
        "java/data_evolution",
        "java/append_deletion_vectors",
        "java/pk_deletion_vectors",
        "java/pk_deletion_vectors_lookup_changelog",
        "java/append_bucketed_ordered",
        "java/append_compacted",
        "java/bucket_function_hive",
        "java/bucket_function_mod",
        "java/bucket_key_composite",
        "java/bucket_key_decimal_large",
        "java/bucket_key_int",
        "java/bucket_key_timestamp6",
        "java/consumer_statistics_properties",
        "java/default_values",
        "java/file_index_embedded",
        "java/file_index_sidecar",
        "java/manifest_merge",
        "java/partition_types",
        "java/path_options",
        "java/pk_aggregation_collections",
        "java/pk_aggregation_retract",
        "java/pk_aggregation_scalar",
        "java/pk_aggregation_sketches",
        "java/pk_changelog_full_compaction",
        "java/pk_changelog_input",
        "java/pk_changelog_lookup",
        "java/pk_changelog_separated",
        "java/pk_cross_partition",
        "java/pk_dedup_avro",
        "java/pk_dedup_orc",
        "java/pk_dedup_parquet",
        "java/pk_double_key",
        "java/pk_dynamic_bucket",
        "java/pk_first_row",
        "java/pk_format_per_level",
        "java/pk_partial_update_groups",
        "java/pk_partial_update_remove_delete",
        "java/pk_partial_update_remove_group",
        "java/pk_partition_overwrite",
        "java/pk_postpone",
        "java/pk_postpone_rescued",
        "java/pk_rowkind_field_ignore_delete",
        "java/pk_sequence_desc",
        "java/pk_sequence_multi",
        "java/pk_size_ratio_levels",
        "java/pk_streaming_session",
        "java/record_level_expire",
        "java/rollback_expire",
        "java/row_tracking",
        "java/schema_evolution_append",
        "java/schema_evolution_nested",
        "java/schema_evolution_pk",
        "java/stats_modes",
        "java/stats_none",
        "java/tags_branches",
        "java/truncate_empty",
        "java/types_avro",
        "java/types_nested_orc",
        "java/types_nested_parquet",
        "java/types_nested_pk_avro",
        "java/types_orc",
        "java/types_parquet",
        "java/types_variant",
        "java/types_vector",
        "java/write_only_dedicated",
        "pypaimon/append_all_types_avro",
        "pypaimon/append_all_types_orc",
        "pypaimon/append_all_types_parquet",
        "pypaimon/append_bucketed",
        "pypaimon/append_nested_types",
        "pypaimon/append_overwrite",
        "pypaimon/append_partitioned",
        "pypaimon/append_partitioned_date",
        "pypaimon/append_row_tracking",
        "pypaimon/append_schema_evolution",
        "pypaimon/append_value_stats",
        "pypaimon/pk_aggregation",
        "pypaimon/pk_avro",
        "pypaimon/pk_changelog_input",
        "pypaimon/pk_composite_key",
        "pypaimon/pk_deletes_rowkind_field",
        "pypaimon/pk_dynamic_bucket",
        "pypaimon/pk_fixed_bucket",
        "pypaimon/pk_orc",
        "pypaimon/pk_partial_update",
        "pypaimon/pk_partitioned",
        "pypaimon/pk_postpone_bucket",
        "pypaimon/pk_sequence_field",
        "pypaimon/tag_and_branch",
    }
)

# What it refuses, and the word that names the feature in the message.
REFUSED: Final[Mapping[str, str]] = {
    "java/orc_time_quirks": r"TIMESTAMP\(9\)",  # years 0 to 2262 in nanoseconds: more than 64 bits hold
}

TABLES: Final = golden_tables()
OUR_IDS: Final = READ | REFUSED.keys()


def tables(*, refused: bool | None = None) -> list[Any]:
    """Golden tables as parameters: those we read, those we refuse, or (None) a hook's that no list knows."""
    known = {True: REFUSED.keys(), False: READ, None: {t.id for t in TABLES} - OUR_IDS}[refused]
    return [pytest.param(table, id=table.id) for table in TABLES if table.id in known]


@pytest.fixture
def expected(table: GoldenTable, warehouse: Path) -> dict[str, Any]:
    return golden_expected(warehouse, table.name)


@pytest.fixture
def warehouse(table: GoldenTable, tmp_path: Path) -> Path:
    return table.unpack(tmp_path)


def open_table(warehouse: Path, name: str) -> Any:
    return tidelake.open_catalog(str(warehouse)).table(f"{GOLDEN_DATABASE}.{name}")


def writer_of(table: GoldenTable) -> str:
    return "pypaimon" if table.writer == "pypaimon" else "Java"


def column_names(columns: list[dict[str, Any]]) -> list[str]:
    return [column["name"] for column in columns]


def tagged_columns(location: Path, tag: str) -> list[str]:
    """Those of the schema that the tag's snapshot was written with."""
    schema_id = json.loads((location / "tag" / f"tag-{tag}").read_text())["schemaId"]
    return column_names(json.loads((location / "schema" / f"schema-{schema_id}").read_text())["fields"])


def read_problem(rows: pa.Table, expected: list[Any], columns: list[str]) -> str | None:
    if rows.schema.names != columns:
        return f"columns {rows.schema.names} instead of {columns}"
    return difference(rows, expected)


def reads(warehouse: Path, table: GoldenTable, expected: dict[str, Any]) -> Iterator[tuple[str, str | None]]:
    """Every read that expected.json knows, and what is wrong with ours."""
    opened, columns = open_table(warehouse, table.name), column_names(expected["columns"])
    yield "latest", read_problem(opened.scan().to_arrow(), expected["rows"], columns)
    for snapshot in expected.get("snapshots", []):
        rows = opened.scan(snapshot=snapshot["id"]).to_arrow()
        then = column_names(snapshot["columns"]) if "columns" in snapshot else columns
        yield f"snapshot {snapshot['id']}", read_problem(rows, snapshot["rows"], then)
    for name, tag in expected.get("tags", {}).items():
        rows = opened.scan(tag=name).to_arrow()
        then = column_names(tag["columns"]) if "columns" in tag else tagged_columns(Path(opened.location), name)
        yield f"tag {name}", read_problem(rows, tag["rows"], then)
    for name, branch in expected.get("branches", {}).items():
        rows = open_table(warehouse, f"{table.name}$branch_{name}").scan().to_arrow()
        there = column_names(branch["columns"]) if "columns" in branch else columns
        yield f"branch {name}", read_problem(rows, branch["rows"], there)


def streams(warehouse: Path, table: GoldenTable, expected: dict[str, Any]) -> Iterator[tuple[str, str | None]]:
    """The changes of every snapshot that expected.json knows, and what is wrong with ours."""
    opened = open_table(warehouse, table.name)
    # order holds inside a bucket: a key that moves to another partition has its two rows in any order
    ordered_by = [*expected["primary_keys"], *set(expected["partition_keys"]).difference(expected["primary_keys"])]
    for snapshot in expected["snapshots"]:
        batches = [batch.rows for batch in opened.changes(start=snapshot["id"], end=snapshot["id"])]
        if batches:
            problem = changes_difference(pa.Table.from_batches(batches), snapshot["stream"], ordered_by)
        else:
            problem = f"no changes instead of {snapshot['stream']}" if snapshot["stream"] else None
        yield f"snapshot {snapshot['id']}", problem


def test_every_golden_table_is_in_exactly_one_list() -> None:
    assert not READ & REFUSED.keys()
    if not is_overridden("TIDELAKE_GOLDEN"):
        assert {table.id for table in TABLES} == OUR_IDS


@pytest.mark.parametrize("table", tables(refused=False))
def test_rows_snapshots_tags_and_branches_read_as_their_writer_reads_them(
    table: GoldenTable, warehouse: Path, expected: dict[str, Any]
) -> None:
    problems = [f"{what}: {problem}" for what, problem in reads(warehouse, table, expected) if problem]
    record("Tidelake", warehouse, f"{GOLDEN_DATABASE}.{table.name}", writer=writer_of(table))
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("table", [*tables(refused=False), *tables(refused=True)])
def test_golden_tables_pass_deep_verification(table: GoldenTable, warehouse: Path) -> None:
    report = inspect_table(open_table(warehouse, table.name), deep=True)
    assert [str(problem) for problem in report.problems] == []


@pytest.mark.parametrize("table", [p for p in tables(refused=False) if p.values[0].writer != "pypaimon"])
def test_changes_of_each_snapshot_equal_javas_stream(
    table: GoldenTable, warehouse: Path, expected: dict[str, Any]
) -> None:
    problems = [f"{what}: {problem}" for what, problem in streams(warehouse, table, expected) if problem]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("table", tables(refused=True))
def test_an_unsupported_feature_is_refused_by_name(table: GoldenTable, warehouse: Path) -> None:
    with pytest.raises(tidelake.UnsupportedFeature, match=REFUSED[table.id]):
        open_table(warehouse, table.name).scan().to_arrow()
    name = f"{GOLDEN_DATABASE}.{table.name}"
    record(
        "Tidelake",
        warehouse,
        name,
        Outcome.REFUSED,
        writer=writer_of(table),
        reason=REFUSED[table.id].replace("\\", ""),
    )


if tables():  # only a hook's folder has such tables

    @pytest.mark.parametrize("table", tables())
    def test_an_unlisted_table_is_read_exactly_or_refused(
        table: GoldenTable, warehouse: Path, expected: dict[str, Any]
    ) -> None:
        problems = []
        for compared in (reads, streams) if table.writer != "pypaimon" else (reads,):
            with suppress(tidelake.UnsupportedFeature):  # what was read before it still counts
                for what, problem in compared(warehouse, table, expected):
                    problems += [f"{what}: {problem}"] if problem else []
        assert not problems, "\n".join(problems)
