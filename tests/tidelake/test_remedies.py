"""A refusal names a remedy, and the remedy works: each is provoked, followed as the message says, and tried again.

A case provokes an error, and lists the remedies of its message: the words that name each one, and the steps it means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pytest

import tidelake
from tidelake import SetOption, UpdateColumnType, col

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("p", pa.string())])
ROWS = [{"k": 1, "v": 1, "p": "a"}, {"k": 2, "v": 2, "p": "b"}]
DELETE = 3

Steps = Callable[["Lake"], None]


class Lake:
    """A catalog with one table at a time, `d.t`, and how to make and fill it."""

    def __init__(self) -> None:
        self.catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
        self.catalog.create_database("d")

    def create(self, options: Mapping[str, str], *, key: Sequence[str] = (), by: Sequence[str] = ()) -> None:
        self.catalog.drop_table("d.t", if_exists=True)
        self.catalog.create_table("d.t", COLUMNS, primary_key=list(key), partition_by=list(by), options=options)

    @property
    def table(self) -> tidelake.Table:
        return self.catalog.table("d.t")

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        columns = COLUMNS.append(pa.field("_VALUE_KIND", pa.int8())) if "_VALUE_KIND" in rows[0] else COLUMNS
        with self.table.writer() as writer:
            writer.write(pa.Table.from_pylist(list(rows), columns))
            writer.commit()

    def filled(self, options: Mapping[str, str], key: Sequence[str] = ()) -> None:
        self.create(options, key=key)
        self.write(ROWS)

    def use_deletion_vectors(self) -> None:
        for option in ("deletion-vectors.modifiable", "deletion-vectors.enabled"):
            self.catalog.alter_table("d.t", [SetOption(option, "true")])

    def keys(self) -> list[int]:
        return sorted(self.table.scan().to_arrow()["k"].to_pylist())

    def delete_first(self) -> None:
        self.table.delete(col("k") == 1)
        assert self.keys() == [2]

    def write_delete(self) -> None:
        self.write([{**ROWS[0], "_VALUE_KIND": DELETE}])


class Refusal(NamedTuple):
    """remedies: by the words of the message that name it."""

    provoke: Steps
    remedies: Mapping[str, Steps]


def recreated(options: Mapping[str, str], then: Callable[[Lake], None], key: Sequence[str] = ("k",)) -> Steps:
    def steps(lake: Lake) -> None:
        lake.filled({"bucket": "1", **options}, key)
        then(lake)

    return steps


def provoked(options: Mapping[str, str], then: Callable[[Lake], None], key: Sequence[str] = ("k",)) -> Steps:
    return recreated(options, then, key)


def updated_by_row_id(lake: Lake) -> None:
    ids = lake.table.scan(columns=["_ROW_ID"], filter=col("k") == 1).to_arrow()["_ROW_ID"]
    lake.table.update_columns(pa.table({"_ROW_ID": ids, "v": pa.array([7], pa.int64())}))
    assert lake.table.scan(filter=col("k") == 1).to_arrow()["v"].to_pylist() == [7]


def updated(lake: Lake) -> None:
    lake.table.update(col("k") == 1, {"v": 7})


def deleted_with_vectors(lake: Lake) -> None:
    lake.use_deletion_vectors()
    lake.delete_first()


def with_vectors_at_once(lake: Lake) -> None:
    lake.catalog.alter_table("d.t", [SetOption("deletion-vectors.enabled", "true")])


def compacted_then_with_vectors(lake: Lake) -> None:
    lake.table.compact(full=True)
    lake.use_deletion_vectors()


def overflow(lake: Lake) -> None:
    lake.write([{"k": 1, "v": 2**63 - 1, "p": "a"}])
    lake.table.scan().to_arrow()


def widened(lake: Lake) -> None:
    lake.catalog.alter_table("d.t", [UpdateColumnType("v", "DECIMAL(38, 0)")])
    assert lake.table.scan(filter=col("k") == 1).to_arrow()["v"].to_pylist() == [2**63]


TRACKING = {"bucket": "-1", "row-tracking.enabled": "true"}
AGGREGATION = {"merge-engine": "aggregation"}
MAX = {**AGGREGATION, "fields.v.aggregate-function": "max"}
PARTIAL_UPDATE = {"merge-engine": "partial-update"}

REFUSALS: Mapping[str, Refusal] = {
    "rows with ids are deleted": Refusal(
        provoked(TRACKING, Lake.delete_first, ()),
        {
            "Set deletion-vectors.modifiable = true, then deletion-vectors.enabled = true": deleted_with_vectors,
        },
    ),
    "rows with ids are updated": Refusal(
        provoked(
            {**TRACKING, "data-evolution.enabled": "true"},
            updated,
            (),
        ),
        {"Read _ROW_ID of the matching rows, and write their columns again: update_columns()": updated_by_row_id},
    ),
    "a condition deletes rows of an aggregation": Refusal(
        provoked(AGGREGATION, Lake.delete_first),
        {
            "create a table with aggregation.remove-record-on-delete = true": recreated(
                {**AGGREGATION, "aggregation.remove-record-on-delete": "true"}, Lake.delete_first
            )
        },
    ),
    "a condition deletes rows of partial-update": Refusal(
        provoked(PARTIAL_UPDATE, Lake.delete_first),
        {
            "create a table with partial-update.remove-record-on-delete = true": recreated(
                {**PARTIAL_UPDATE, "partial-update.remove-record-on-delete": "true"}, Lake.delete_first
            )
        },
    ),
    "a condition deletes rows of sequence groups": Refusal(
        provoked({**PARTIAL_UPDATE, "fields.v.sequence-group": "p"}, Lake.delete_first),
        {
            "create a table with partial-update.remove-record-on-sequence-group": recreated(
                {
                    **PARTIAL_UPDATE,
                    "fields.v.sequence-group": "p",
                    "partial-update.remove-record-on-sequence-group": "v",
                },
                Lake.delete_first,
            )
        },
    ),
    "a delete is written to partial-update": Refusal(
        provoked(PARTIAL_UPDATE, Lake.write_delete),
        {
            "'ignore-delete' = 'true'": recreated({**PARTIAL_UPDATE, "ignore-delete": "true"}, Lake.write_delete),
            "'partial-update.remove-record-on-delete' = 'true'": recreated(
                {**PARTIAL_UPDATE, "partial-update.remove-record-on-delete": "true"}, Lake.write_delete
            ),
            "'fields.<column>.sequence-group'": recreated(
                {**PARTIAL_UPDATE, "fields.v.sequence-group": "p"}, Lake.write_delete
            ),
        },
    ),
    "a delete is written to a function without retracts": Refusal(
        provoked(MAX, Lake.write_delete),
        {
            f"'{option}' = 'true'": recreated({**MAX, option: "true"}, Lake.write_delete)
            for option in ("fields.v.ignore-retract", "aggregation.remove-record-on-delete", "ignore-delete")
        },
    ),
    "a delete is written to first-row": Refusal(
        provoked({"merge-engine": "first-row"}, Lake.write_delete),
        {"ignore-delete": recreated({"merge-engine": "first-row", "ignore-delete": "true"}, Lake.write_delete)},
    ),
    "an option is misspelt": Refusal(
        lambda lake: lake.create({"bukcet": "2"}, key=["k"]),
        {"did you mean 'bucket'": lambda lake: lake.create({"bucket": "2"}, key=["k"])},
    ),
    "deletion vectors are switched on": Refusal(
        provoked({"bucket": "-1"}, with_vectors_at_once, ()),
        {
            "'deletion-vectors.modifiable' = 'true' first": compacted_then_with_vectors,
        },
    ),
    "a sum is larger than its column": Refusal(
        provoked({**AGGREGATION, "fields.v.aggregate-function": "sum"}, overflow),
        {
            "change the column to a wider type: `tidelake table alter TABLE --set-type 'v DECIMAL(38, 0)'`": widened,
        },
    ),
}
CASES = [(about, words) for about, refusal in REFUSALS.items() for words in refusal.remedies]


@pytest.mark.parametrize(("about", "words"), CASES, ids=[f"{about}: {words}" for about, words in CASES])
def test_the_remedy_of_a_message_works(about: str, words: str) -> None:
    lake, refusal = Lake(), REFUSALS[about]
    with pytest.raises(tidelake.TidelakeError) as refused:
        refusal.provoke(lake)
    assert words in str(refused.value)
    refusal.remedies[words](lake)
