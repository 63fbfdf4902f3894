"""Schema files of other writers are read and rewritten unchanged."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from fnmatch import fnmatch
from typing import Any

import pytest
import zstandard

from tests.support.cases import GoldenTable, golden_tables
from tidelake.errors import CorruptFile
from tidelake.storage.ddl.schema_validation import check_schema
from tidelake.storage.model.schema.table_schema import TableSchema

PATTERNS = ("schema/schema-*", "branch/branch-*/schema/schema-*")
WITH_BLOBS = "java/types_blob"  # this release neither reads nor writes them


def schema_files(table: GoldenTable) -> Iterator[tuple[str, bytes]]:
    """Path in the table's directory, content."""
    if table.source.is_dir():
        for pattern in PATTERNS:
            for path in sorted(table.source.glob(pattern)):
                yield str(path.relative_to(table.source)), path.read_bytes()
        return
    with zstandard.open(table.source, "rb") as packed, tarfile.open(fileobj=packed, mode="r|") as archive:
        for member in archive:
            name = member.name.removeprefix("./")
            if any(fnmatch(name, pattern) for pattern in PATTERNS):
                content = archive.extractfile(member)
                assert content is not None
                yield name, content.read()


GOLDEN = [pytest.param(table, id=table.id) for table in golden_tables()]


@pytest.mark.parametrize("table", GOLDEN)
def test_a_golden_schema_is_unchanged_when_rewritten(table: GoldenTable) -> None:
    files = dict(schema_files(table))
    assert files
    for path, content in files.items():
        schema = TableSchema.from_json(content, path)
        written = schema.to_json().encode()
        assert TableSchema.from_json(written, path) == schema
        if table.writer == "java":
            assert written == content  # byte for byte
        else:
            assert without_redundancy(json.loads(written)) == without_redundancy(json.loads(content))


def without_redundancy(members: Any) -> Any:
    """What pypaimon writes besides: a `nullable` that the type's word says already, a comment that is null."""
    match members:
        case dict():
            kept = {k: without_redundancy(v) for k, v in members.items() if k != "nullable" and v is not None}
            if "type" in kept and isinstance(kept["type"], str):
                kept["type"] = kept["type"].replace("TIMESTAMP_LTZ(6)", "TIMESTAMP(6) WITH LOCAL TIME ZONE")
            return kept
        case list():
            return [without_redundancy(member) for member in members]
    return members


@pytest.mark.parametrize("table", [p for p in GOLDEN if p.id != WITH_BLOBS])
def test_a_golden_schema_breaks_no_rule(table: GoldenTable) -> None:
    for path, content in schema_files(table):
        check_schema(TableSchema.from_json(content, path))


@pytest.mark.parametrize(
    ("content", "options"),
    [
        pytest.param({"version": 1}, {"bucket": "1", "file.format": "orc"}, id="0.7 and before"),
        pytest.param({}, {"bucket": "1", "file.format": "orc"}, id="no version at all"),
        pytest.param({"version": 1, "options": {"bucket": "5"}}, {"bucket": "5", "file.format": "orc"}, id="0.7, set"),
        pytest.param({"version": 2}, {"file.format": "orc"}, id="0.8"),
        pytest.param({"version": 3}, {}, id="0.9 and later"),
    ],
)
def test_defaults_of_old_schema_versions_are_kept(content: dict[str, Any], options: dict[str, str]) -> None:
    members = {"id": 0, "fields": [], "highestFieldId": -1, "partitionKeys": [], "primaryKeys": [], **content}
    assert TableSchema.from_json(json.dumps(members).encode(), "schema-0").options == options


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b'{"id": 0, ', r"schema-0 at byte \d+: expected the JSON", id="cut off"),
        pytest.param(b"[]", "schema-0: expected the JSON", id="no object"),
        pytest.param(b'{"id": 0}', "fields", id="a member missing"),
        pytest.param(b'{"version": 4}', "version 3 or older, found version 4", id="a later version"),
        pytest.param(b'{"id": 0, "fields": [{"id": 0, "name": "a", "type": "NAME"}]}', "NAME", id="an unknown type"),
    ],
)
def test_an_invalid_schema_is_named(content: bytes, message: str) -> None:
    with pytest.raises(CorruptFile, match=message):
        TableSchema.from_json(content, "t/schema/schema-0")
