"""A refused batch, or a commit that conflicts with another, names a remedy, and the remedy works."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import pyarrow as pa

from tests.tidelake.remedies.refusals import (
    COLUMNS,
    ROWS,
    Lake,
    Refusal,
    Steps,
    altered,
    check,
    created,
    each_remedy,
    filled,
    then,
)
from tidelake import AddColumn, SetOption, UpdateColumnNullability, col

KEYED = {"bucket": "1"}
BATCH = pa.Table.from_pylist(ROWS, COLUMNS)
AGGREGATION = {**KEYED, "merge-engine": "aggregation"}
WITH_MORE = BATCH.append_column("w", pa.array([1, 2], pa.int64()))
OLD = pa.table({"k": pa.array([1], pa.int64()), "v": pa.array([datetime(1960, 1, 1, 0, 0, 0, 5)], pa.timestamp("us"))})
ORC = {"file.format": "orc"}


def written(batch: pa.Table) -> Steps:
    return lambda lake: lake.write_batch(batch)


def written_twice(lake: Lake) -> None:
    """One writer is open while another one commits, and commits then."""
    with lake.table.writer() as writer:
        writer.write(BATCH)
        lake.write(ROWS)
        writer.commit()


def in_turns(lake: Lake) -> None:
    lake.write(ROWS)
    lake.write(ROWS)


def rescaled_beside_a_writer(lake: Lake) -> None:
    with lake.table.writer() as writer:
        writer.write(BATCH)
        lake.catalog.rescale_table("d.t", 3)
        writer.commit()


def rolled_back_beside_a_writer(lake: Lake) -> None:
    with lake.table.writer() as writer:
        writer.write(BATCH)
        writer.commit()
        lake.table.rollback(snapshot=1)
        writer.write(BATCH)
        writer.commit()


def written_again(lake: Lake) -> None:
    lake.write(ROWS)
    assert lake.keys() == [1, 2]


@contextmanager
def a_closed_writer(lake: Lake) -> Iterator[Any]:
    with lake.table.writer() as writer:
        pass
    yield writer


def written_to_a_closed_writer(lake: Lake) -> None:
    with a_closed_writer(lake) as writer:
        writer.write(BATCH)


def merged(**arguments: Any) -> Steps:
    return lambda lake: lake.table.merge(BATCH, **arguments)


def truncated(partition: Mapping[str, Any] | None) -> Steps:
    return lambda lake: lake.table.truncate(partition=partition)


def overwritten(partition: Mapping[str, Any] | bool, rows: pa.Table) -> Steps:
    def steps(lake: Lake) -> None:
        with lake.table.writer(overwrite=partition) as writer:
            writer.write(rows)
            writer.commit()

    return steps


BATCHES: Mapping[str, Refusal] = {
    "a batch has a column that the table lacks": Refusal(
        written(WITH_MORE),
        {
            "Drop the column from the batch": written(BATCH),
            "or add it to the table": then(altered(AddColumn("w", pa.int64())), written(WITH_MORE)),
        },
        ready=filled({}),
    ),
    "a delete is written to an append table": Refusal(
        Lake.write_delete,
        {
            "Create the table with a primary_key": then(filled(KEYED, key=["k"]), Lake.write_delete),
            "With the option 'ignore-delete' = 'true' it keeps all versions of a row": then(
                filled({"ignore-delete": "true"}), Lake.write_delete
            ),
        },
        ready=filled({}),
    ),
    "a column name does not fit into Avro files": Refusal(
        written(pa.table({"k": pa.array([1], pa.int64()), "a b": pa.array([1], pa.int64())})),
        {
            "Rename the column": then(
                created({"file.format": "avro"}, columns=pa.schema([("k", pa.int64()), ("a_b", pa.int64())])),
                written(pa.table({"k": pa.array([1], pa.int64()), "a_b": pa.array([1], pa.int64())})),
            ),
            "or set file.format = parquet": then(
                altered(SetOption("file.format", "parquet")),
                written(pa.table({"k": pa.array([1], pa.int64()), "a b": pa.array([1], pa.int64())})),
            ),
        },
        ready=created({"file.format": "avro"}, columns=pa.schema([("k", pa.int64()), ("a b", pa.int64())])),
    ),
    "an old time is finer than ORC's readers can tell": Refusal(
        written(OLD),
        {
            "Set file.format = parquet": then(altered(SetOption("file.format", "parquet")), written(OLD)),
            "or cut the value to milliseconds": written(
                OLD.set_column(1, "v", pa.array([datetime(1960, 1, 1)], pa.timestamp("us")))
            ),
        },
        ready=created(ORC, columns=OLD.schema),
    ),
    "the rows of a key leave no value in a NOT NULL column": Refusal(
        Lake.write_delete,
        {
            "Make the column nullable": then(
                altered(UpdateColumnNullability("v", nullable=True)), lambda lake: lake.write_delete()
            )
        },
        ready=then(
            created(
                {**AGGREGATION, "fields.v.aggregate-function": "last_non_null_value"},
                key=["k"],
                columns=pa.schema([COLUMNS.field("k"), COLUMNS.field("v").with_nullable(False), COLUMNS.field("p")]),
            ),
            lambda lake: lake.write(ROWS),
        ),
    ),
    "a merge does not say which columns are common": Refusal(
        merged(on=[]), {"on=[": merged(on=["k"])}, ready=filled({"bucket": "-1"})
    ),
    "a merge names a column that its rows lack": Refusal(
        lambda lake: lake.table.merge(BATCH.drop(["p"]), on=["p"]),
        {"add the column": merged(on=["p"])},
        ready=filled({}),
    ),
    "a merge has two rows of a key": Refusal(
        lambda lake: lake.table.merge(pa.concat_tables([BATCH, BATCH]), on=["p"]),
        {
            "leave one of them": lambda lake: lake.table.merge(BATCH, on=["p"]),
            "or merge on more columns": lambda lake: lake.table.merge(BATCH, on=["p", "k"]),
        },
        ready=filled({}),
    ),
    "a condition changes the key": Refusal(
        lambda lake: lake.table.update(col("k") == 1, {"k": 5}),
        {
            "Delete the rows, and write them again": then(
                lambda lake: lake.table.delete(col("k") == 1),
                lambda lake: lake.write([{"k": 5, "v": 1, "p": "a"}]),
                lambda lake: _expect(lake, [2, 5]),
            )
        },
        ready=filled(KEYED, key=["k"]),
    ),
    "a truncate names an empty partition": Refusal(
        truncated({}),
        {
            "Give a partition column and its value": truncated({"p": "a"}),
            "truncate() without partitions removes all rows": truncated(None),
        },
        ready=filled({}, by=["p"]),
    ),
    "a row is outside of the overwritten partition": Refusal(
        overwritten({"p": "a"}, BATCH),
        {
            "Filter the rows": overwritten({"p": "a"}, BATCH.slice(0, 1)),
            "or pass overwrite=True": overwritten(True, BATCH),
        },
        ready=filled({}, by=["p"]),
    ),
    "two rows of a column update are one row": Refusal(
        lambda lake: lake.table.update_columns(_by_id(lake, [0, 0])),
        {"pass each row once": lambda lake: lake.table.update_columns(_by_id(lake, [0, 1]))},
        ready=filled({"row-tracking.enabled": "true", "data-evolution.enabled": "true"}),
    ),
}

COMMITS: Mapping[str, Refusal] = {
    "a writer is closed": Refusal(
        written_to_a_closed_writer, {"Open a new writer, and write these rows again": written_again}, ready=created({})
    ),
    "the table was rescaled": Refusal(
        rescaled_beside_a_writer,
        {"Load the table again, open a new writer, and write the uncommitted rows again": written_again},
        ready=filled({"bucket": "2"}, key=["k"]),
    ),
    "the table was rolled back": Refusal(
        rolled_back_beside_a_writer,
        {"Open the table and write again": written_again},
        ready=filled(KEYED, key=["k"]),
    ),
    "another writer gave keys to other dynamic buckets": Refusal(
        written_twice,
        {"write the uncommitted rows again": in_turns},
        ready=created({"bucket": "-1", "dynamic-bucket.target-row-num": "1"}, key=["k"]),
    ),
    "another writer wrote to a table whose keys move": Refusal(
        written_twice,
        {"Open the table again, and write the uncommitted rows again": in_turns},
        ready=created({"bucket": "-1"}, key=["k"], by=["p"]),
    ),
    "an identifier was used before": Refusal(
        lambda lake: lake.table.append(BATCH, commit_user="daily", identifier=3),
        {
            "continue with a larger one": lambda lake: lake.table.append(BATCH, commit_user="daily", identifier=8),
            "or use another commit user": lambda lake: lake.table.append(BATCH, commit_user="other", identifier=3),
        },
        ready=then(filled({}), lambda lake: lake.table.append(BATCH, commit_user="daily", identifier=7)),
    ),
}


def _expect(lake: Lake, keys: list[int]) -> None:
    assert lake.keys() == keys


def _by_id(lake: Lake, rows: list[int]) -> pa.Table:
    ids = lake.table.scan(columns=["_ROW_ID"]).to_arrow()["_ROW_ID"].combine_chunks().take(rows)
    return pa.table({"_ROW_ID": ids, "v": pa.array([7] * len(rows), pa.int64())})


@each_remedy(BATCHES)
def test_the_remedy_of_a_refused_batch_works(refusal: Refusal, words: str) -> None:
    check(refusal, words)


@each_remedy(COMMITS)
def test_the_remedy_of_a_refused_commit_works(refusal: Refusal, words: str) -> None:
    check(refusal, words)
