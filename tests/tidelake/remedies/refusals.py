"""What the tests of remedies share: a lake with one table, and cases of refusals.

A case provokes an error, and lists the remedies of its message: the words that name each one, and the steps it means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pytest

import tidelake
from tidelake.storage.ddl.schema_changes import SchemaChange

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("p", pa.string())])
ROWS = [{"k": 1, "v": 1, "p": "a"}, {"k": 2, "v": 2, "p": "b"}]
DELETE = 3

Options = Mapping[str, str]


class Lake:
    """A catalog with one table at a time, `d.t`, and how to make and fill it."""

    def __init__(self) -> None:
        self.catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
        self.catalog.create_database("d")

    def create(
        self,
        options: Options,
        *,
        key: Sequence[str] = (),
        by: Sequence[str] = (),
        columns: pa.Schema = COLUMNS,
    ) -> None:
        self.catalog.drop_table("d.t", if_exists=True)
        self.catalog.create_table("d.t", columns, primary_key=list(key), partition_by=list(by), options=options)

    @property
    def table(self) -> tidelake.Table:
        return self.catalog.table("d.t")

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        columns = COLUMNS.append(pa.field("_VALUE_KIND", pa.int8())) if "_VALUE_KIND" in rows[0] else COLUMNS
        self.write_batch(pa.Table.from_pylist(list(rows), columns))

    def write_batch(self, batch: pa.Table) -> None:
        with self.table.writer() as writer:
            writer.write(batch)
            writer.commit()

    def alter(self, *changes: SchemaChange) -> None:
        self.catalog.alter_table("d.t", list(changes))

    def keys(self) -> list[int]:
        return sorted(self.table.scan().to_arrow()["k"].to_pylist())

    def write_delete(self) -> None:
        self.write([{**ROWS[0], "_VALUE_KIND": DELETE}])


Steps = Callable[[Lake], object]


class Refusal(NamedTuple):
    """remedies: by the words of the message that name it. ready: what is there before, and in a lake of the remedy."""

    provoke: Steps
    remedies: Mapping[str, Steps]
    ready: Steps = lambda lake: None


def created(
    options: Options, *, key: Sequence[str] = (), by: Sequence[str] = (), columns: pa.Schema = COLUMNS
) -> Steps:
    return lambda lake: lake.create(options, key=key, by=by, columns=columns)


def filled(options: Options, *, key: Sequence[str] = (), by: Sequence[str] = ()) -> Steps:
    def steps(lake: Lake) -> None:
        lake.create(options, key=key, by=by)
        lake.write(ROWS)

    return steps


def altered(*changes: SchemaChange) -> Steps:
    return lambda lake: lake.alter(*changes)


def then(*steps: Steps) -> Steps:
    def all_steps(lake: Lake) -> None:
        for step in steps:
            step(lake)

    return all_steps


def each_remedy(refusals: Mapping[str, Refusal]) -> pytest.MarkDecorator:
    """Parametrizes a test with (refusal, words) of each remedy."""
    cases = [(about, refusal, words) for about, refusal in refusals.items() for words in refusal.remedies]
    return pytest.mark.parametrize(
        ("refusal", "words"),
        [(refusal, words) for _, refusal, words in cases],
        ids=[f"{about}: {words}" for about, _, words in cases],
    )


def check(refusal: Refusal, words: str) -> None:
    """The message has the words, and what they mean works. A refused remedy, or one that changes nothing, fails."""
    lake = Lake()
    refusal.ready(lake)
    with pytest.raises(tidelake.TidelakeError) as refused:
        refusal.provoke(lake)
    assert words in str(refused.value)
    refusal.remedies[words](lake)
