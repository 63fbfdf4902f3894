"""Option `manifest.format`: manifests are written in this format, Java opens them, and everything else works
with them.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tests.support.java_oracle import JavaOracle
from tidelake import SetOption, Table
from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.commit.manifests.record_file import format_of_metadata
from tidelake.storage.maintenance.verify import verify

NAME = "db.t"
COLUMNS = pa.schema(
    [pa.field("p", pa.string(), nullable=False), pa.field("k", pa.int32(), nullable=False), pa.field("v", pa.string())]
)
OPTIONS = {"bucket": "1", "manifest.merge-min-count": "3", "changelog-producer": "input"}


def new_table(folder: Path, **options: str) -> Table:
    catalog = tidelake.open_catalog(str(folder))
    catalog.create_database("db")
    more = {key.replace("_", "."): value for key, value in options.items()}
    return catalog.create_table(NAME, COLUMNS, primary_key=["p", "k"], partition_by=["p"], options={**OPTIONS, **more})


def write(table: Table, number: int) -> None:
    with table.writer() as writer:
        writer.write(pa.table({"p": ["x", "y"], "k": [number, number], "v": ["ours", None]}, schema=COLUMNS))
        writer.commit()


def formats(table: Table) -> set[str | None]:
    return {format_of_metadata(path.read_bytes()) for path in (Path(table.location) / "manifest").iterdir()}


def keys(rows: list[dict[str, object]]) -> list[tuple[object, object]]:
    return sorted((row["p"], row["k"]) for row in rows)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("manifest_format", "compression"), [("orc", "zstd"), ("parquet", "zstd"), ("parquet", "lz4"), ("avro", "zstd")]
)
def test_manifests_of_each_format_are_read_by_java_and_continued_after_java(
    tmp_path: Path, java_oracle: JavaOracle, manifest_format: str, compression: str
) -> None:
    table = new_table(tmp_path, manifest_format=manifest_format, manifest_compression=compression)
    for number in range(5):
        write(table, number)
    expected = [(p, k) for p in ("x", "y") for k in range(5)]
    assert keys(java_oracle.read(tmp_path, NAME)) == expected
    java_oracle.write(tmp_path, NAME, [{"p": "x", "k": 5, "v": "java's"}], wait_compaction=True)
    table.compact(full=True)
    write(table, 6)
    expected = sorted([*expected, ("x", 5), ("x", 6), ("y", 6)])
    assert keys(table.scan().to_arrow().to_pylist()) == expected
    assert keys(java_oracle.read(tmp_path, NAME)) == expected
    assert len(java_oracle.stream(tmp_path, NAME)) == 13
    assert table.expire(retain_min=1, retain_max=1, retain_ms=0).snapshots > 0
    assert verify(table.context, deep=True) == []
    assert keys(java_oracle.read(tmp_path, NAME)) == expected
    table.truncate(partition={"p": "y"})
    assert keys(java_oracle.read(tmp_path, NAME)) == [("x", k) for k in range(7)]
    assert formats(table) == {manifest_format}


def test_an_unsupported_manifest_format_is_refused_by_every_writer(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    write(table, 1)
    schema = Path(table.context.paths.schema(0))
    schema.write_text(schema.read_text().replace('"bucket"', '"manifest.format" : "json",\n    "bucket"'))
    table = tidelake.open_catalog(str(tmp_path)).table(NAME)
    for attempt in (table.writer, lambda: table.compact(full=True), table.truncate):
        with pytest.raises((UnsupportedFeature, BadInput), match=r"manifest\.format"):
            attempt()
    assert table.scan().to_arrow().num_rows == 2


def test_the_manifest_format_cannot_change_and_verify_reports_mixed_formats(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.alter_table(NAME, [SetOption("manifest.format", "orc")])
    table = catalog.table(NAME)
    write(table, 1)
    assert formats(table) == {"orc"}
    with pytest.raises(BadInput, match=r"manifest\.format: Java Paimon reads all manifests"):
        catalog.alter_table(NAME, [SetOption("manifest.format", "avro")])
    latest = max(Path(table.location).glob("schema/schema-*"))  # as Java lets it be changed
    latest.write_text(latest.read_text().replace('"orc"', '"avro"'))
    changed = catalog.table(NAME)
    write(changed, 2)
    assert changed.scan().to_arrow().num_rows == 4
    assert [finding.check for finding in verify(changed.context)] == ["manifest-format"]
