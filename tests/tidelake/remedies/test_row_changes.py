"""A refused delete, update or function names a remedy, and the remedy works."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from tests.tidelake.remedies.refusals import Lake, Options, Refusal, Steps, check, each_remedy, filled, then
from tidelake import SetOption, UpdateColumnType, col


def use_deletion_vectors(lake: Lake) -> None:
    for option in ("deletion-vectors.modifiable", "deletion-vectors.enabled"):
        lake.alter(SetOption(option, "true"))


def delete_first(lake: Lake) -> None:
    lake.table.delete(col("k") == 1)
    assert lake.keys() == [2]


def recreated(options: Options, steps: Steps, key: Sequence[str] = ("k",)) -> Steps:
    return then(filled({"bucket": "1", **options}, key=key), steps)


def updated_by_row_id(lake: Lake) -> None:
    ids = lake.table.scan(columns=["_ROW_ID"], filter=col("k") == 1).to_arrow()["_ROW_ID"]
    lake.table.update_columns(pa.table({"_ROW_ID": ids, "v": pa.array([7], pa.int64())}))
    assert lake.table.scan(filter=col("k") == 1).to_arrow()["v"].to_pylist() == [7]


def updated(lake: Lake) -> None:
    lake.table.update(col("k") == 1, {"v": 7})


def deleted_with_vectors(lake: Lake) -> None:
    use_deletion_vectors(lake)
    delete_first(lake)


def with_vectors_at_once(lake: Lake) -> None:
    lake.catalog.alter_table("d.t", [SetOption("deletion-vectors.enabled", "true")])


def compacted_then_with_vectors(lake: Lake) -> None:
    lake.table.compact(full=True)
    use_deletion_vectors(lake)


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
        recreated(TRACKING, delete_first, ()),
        {
            "Set deletion-vectors.modifiable = true, then deletion-vectors.enabled = true": deleted_with_vectors,
        },
    ),
    "rows with ids are updated": Refusal(
        recreated(
            {**TRACKING, "data-evolution.enabled": "true"},
            updated,
            (),
        ),
        {"Read _ROW_ID of the matching rows, and write their columns again: update_columns()": updated_by_row_id},
    ),
    "a condition deletes rows of an aggregation": Refusal(
        recreated(AGGREGATION, delete_first),
        {
            "create a table with aggregation.remove-record-on-delete = true": recreated(
                {**AGGREGATION, "aggregation.remove-record-on-delete": "true"}, delete_first
            )
        },
    ),
    "a condition deletes rows of partial-update": Refusal(
        recreated(PARTIAL_UPDATE, delete_first),
        {
            "create a table with partial-update.remove-record-on-delete = true": recreated(
                {**PARTIAL_UPDATE, "partial-update.remove-record-on-delete": "true"}, delete_first
            )
        },
    ),
    "a condition deletes rows of sequence groups": Refusal(
        recreated({**PARTIAL_UPDATE, "fields.v.sequence-group": "p"}, delete_first),
        {
            "create a table with partial-update.remove-record-on-sequence-group": recreated(
                {
                    **PARTIAL_UPDATE,
                    "fields.v.sequence-group": "p",
                    "partial-update.remove-record-on-sequence-group": "v",
                },
                delete_first,
            )
        },
    ),
    "a delete is written to partial-update": Refusal(
        recreated(PARTIAL_UPDATE, Lake.write_delete),
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
        recreated(MAX, Lake.write_delete),
        {
            f"'{option}' = 'true'": recreated({**MAX, option: "true"}, Lake.write_delete)
            for option in ("fields.v.ignore-retract", "aggregation.remove-record-on-delete", "ignore-delete")
        },
    ),
    "a delete is written to first-row": Refusal(
        recreated({"merge-engine": "first-row"}, Lake.write_delete),
        {"ignore-delete": recreated({"merge-engine": "first-row", "ignore-delete": "true"}, Lake.write_delete)},
    ),
    "an option is misspelt": Refusal(
        lambda lake: lake.create({"bukcet": "2"}, key=["k"]),
        {"did you mean 'bucket'": lambda lake: lake.create({"bucket": "2"}, key=["k"])},
    ),
    "deletion vectors are switched on": Refusal(
        recreated({"bucket": "-1"}, with_vectors_at_once, ()),
        {
            "'deletion-vectors.modifiable' = 'true' first": compacted_then_with_vectors,
        },
    ),
    "a sum is larger than its column": Refusal(
        recreated({**AGGREGATION, "fields.v.aggregate-function": "sum"}, overflow),
        {
            "change the column to a wider type: `tidelake table alter TABLE --set-type 'v DECIMAL(38, 0)'`": widened,
        },
    ),
}


@each_remedy(REFUSALS)
def test_the_remedy_of_a_message_works(refusal: Refusal, words: str) -> None:
    check(refusal, words)
