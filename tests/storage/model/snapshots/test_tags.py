"""Tags and branches, read and created."""

from __future__ import annotations

import json
import uuid
from datetime import datetime, timedelta

import pytest

from tests.storage.model.snapshots.tables import added, committer, latest, make_table
from tidelake.errors import BadInput, CorruptFile
from tidelake.storage.commit.commit_message import Committable
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.model.snapshots.branches import branch_names
from tidelake.storage.model.snapshots.tags import Tag, TagStore
from tidelake.storage.model.table import TableContext

NOW = datetime(2024, 5, 6, 7, 8, 9, 123456)


@pytest.fixture
def table() -> TableContext:
    context = make_table(MemoryFileIO(), f"memory://{uuid.uuid4()}/t")
    committer(context).commit(Committable(1, [added("a")]))
    return context


@pytest.fixture
def tags(table: TableContext) -> TagStore:
    return TagStore(table.io, table.paths)


def test_a_tag_is_a_named_copy_of_the_snapshot(table: TableContext, tags: TagStore) -> None:
    tags.create("t 1", latest(table), now=NOW)
    assert table.io.read(table.paths.tag("t 1")).decode() == latest(table).to_json()
    assert tags.all() == {"t 1": latest(table)}
    assert tags.tag("t 1") == Tag("t 1", latest(table))


@pytest.mark.parametrize(
    ("time", "parts"),
    [
        pytest.param(NOW, [2024, 5, 6, 7, 8, 9, 123456000], id="microseconds"),
        pytest.param(NOW.replace(microsecond=0), [2024, 5, 6, 7, 8, 9], id="whole seconds"),
        pytest.param(NOW.replace(microsecond=0, second=0), [2024, 5, 6, 7, 8], id="whole minutes"),
        pytest.param(datetime(2024, 5, 6), [2024, 5, 6, 0, 0], id="midnight"),
        pytest.param(NOW.replace(second=0), [2024, 5, 6, 7, 8, 0, 123456000], id="a fraction after zero seconds"),
    ],
)
def test_a_retention_is_stored_with_the_creation_time(
    table: TableContext, tags: TagStore, time: datetime, parts: list[int]
) -> None:
    tags.create("t", latest(table), retained=timedelta(hours=36), now=time)
    members = json.loads(table.io.read(table.paths.tag("t")))
    assert (members["tagCreateTime"], members["tagTimeRetained"]) == (parts, 129600.0)
    assert tags.tag("t") == Tag("t", latest(table), time, timedelta(hours=36))


def test_a_tag_name_is_unique(table: TableContext, tags: TagStore) -> None:
    tags.create("t", latest(table), now=NOW)
    with pytest.raises(BadInput, match="already has a tag 't'"):
        tags.create("t", latest(table), now=NOW)


@pytest.mark.parametrize("name", ["", " ", "a/b"])
def test_a_name_that_cannot_be_a_file_name_is_refused(table: TableContext, tags: TagStore, name: str) -> None:
    with pytest.raises(BadInput, match="can't be the name of a tag"):
        tags.create(name, latest(table), now=NOW)


def test_a_missing_tag_raises_with_the_existing_ones(table: TableContext, tags: TagStore) -> None:
    with pytest.raises(BadInput, match="no tag 'x'; its tags are: none"):
        tags.get("x")
    tags.create("b", latest(table), now=NOW)
    tags.create("a", latest(table), now=NOW)
    with pytest.raises(BadInput, match="no tag 'x'; its tags are: a, b"):
        tags.get("x")


@pytest.mark.parametrize(
    "member", ['"tagCreateTime": [2024, 5]', '"tagCreateTime": "now"', '"tagTimeRetained": "long"']
)
def test_a_broken_tag_is_named(table: TableContext, tags: TagStore, member: str) -> None:
    text = latest(table).to_json().replace("{", "{" + member + ",", 1)
    table.io.write(table.paths.tag("t"), text.encode())
    with pytest.raises(CorruptFile, match="tag/tag-t"):
        tags.tag("t")


def test_branches_are_directories(table: TableContext) -> None:
    assert branch_names(table.io, table.paths) == []
    for name in ("dev", "b 2"):
        table.io.write(table.paths.for_branch(name).schema(0), b"{}")
    table.io.write(f"{table.paths.branch_directory}/other/x", b"")
    assert branch_names(table.io, table.paths) == ["b 2", "dev"]
