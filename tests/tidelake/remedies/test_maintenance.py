"""Refused maintenance (compactions, tags, branches, rescales, expiry, migrations) names a remedy, and it works."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from tests.tidelake.remedies.refusals import (
    ROWS,
    Lake,
    Refusal,
    Steps,
    altered,
    check,
    each_remedy,
    filled,
    then,
)
from tidelake import SetOption, col

KEYED = {"bucket": "1"}
WAITING = {"bucket": "-2", "postpone.batch-write-fixed-bucket": "false"}
BY_DAY = {"partition.timestamp-formatter": "yyyy-MM-dd", "partition.timestamp-pattern": "$p"}


def written(lake: Lake) -> None:
    lake.write(ROWS)


def compacted(**arguments: object) -> Steps:
    return lambda lake: lake.table.compact(**arguments)  # type: ignore[arg-type]


def rescaled(lake: Lake) -> None:
    lake.catalog.rescale_table("d.t", 3)
    assert lake.keys() == [1, 2]


def tagged(name: str) -> Steps:
    return lambda lake: lake.table.create_tag(name)


def branched(name: str, **source: object) -> Steps:
    return lambda lake: lake.table.create_branch(name, **source)  # type: ignore[arg-type]


def expired(**arguments: object) -> Steps:
    return lambda lake: lake.table.expire_partitions(**arguments)  # type: ignore[arg-type]


REFUSALS: Mapping[str, Refusal] = {
    "a table with a key is sorted": Refusal(
        compacted(full=True, order_by=["v"]),
        {
            "compact this table without sorting": compacted(full=True),
            "Only append tables with bucket = -1 can be sorted": then(
                filled({"bucket": "-1"}), compacted(full=True, order_by=["v"])
            ),
        },
        ready=filled(KEYED, key=["k"]),
    ),
    "a strategy sorts by no column": Refusal(
        compacted(full=True, strategy="zorder"),
        {"name the columns to sort by": compacted(full=True, strategy="zorder", order_by=["k", "v"])},
        ready=filled({}),
    ),
    "rows that wait for a compaction are rescaled": Refusal(
        rescaled,
        {"Compact the table first": then(compacted(full=True), rescaled)},
        ready=filled({"bucket": "2", "deletion-vectors.enabled": "true", "write-only": "true"}, key=["k"]),
    ),
    "changes that wait for the changelog are rescaled": Refusal(
        rescaled,
        {"Run `tidelake table compact d.t": then(compacted(full=True), rescaled)},
        ready=filled({"bucket": "2", "changelog-producer": "full-compaction", "write-only": "true"}, key=["k"]),
    ),
    "rows that wait for their buckets are changed by a condition": Refusal(
        lambda lake: lake.table.delete(col("k") == 1),
        {
            "Compact the table, and change the rows then": then(
                compacted(), lambda lake: lake.table.delete(col("k") == 1)
            )
        },
        ready=filled(WAITING, key=["k"]),
    ),
    "a compaction of rows that wait for their buckets has arguments": Refusal(
        compacted(full=True), {"Compact it without other arguments": compacted()}, ready=filled(WAITING, key=["k"])
    ),
    "a tag exists": Refusal(
        tagged("daily"), {"choose another name": tagged("weekly")}, ready=then(filled({}), tagged("daily"))
    ),
    "a branch exists": Refusal(
        branched("b"), {"choose another name": branched("c")}, ready=then(filled({}), branched("b"))
    ),
    "a branch has the name of the table itself": Refusal(
        branched("main"), {"choose another name": branched("c")}, ready=filled({})
    ),
    "a branch comes from a tag and from a snapshot": Refusal(
        branched("b", tag="daily", snapshot=1),
        {"pass only one of them": then(branched("b", tag="daily"), branched("c", snapshot=1))},
        ready=then(filled({}), tagged("daily")),
    ),
    "partitions expire without an age": Refusal(
        expired(),
        {
            "set it": then(altered(SetOption("partition.expiration-time", "7 d")), expired()),
            "or pass the age": expired(older_than=timedelta(days=7)),
        },
        ready=filled(BY_DAY, by=["p"]),
    ),
    "an opened branch is deleted": Refusal(
        lambda lake: lake.catalog.table("d.t$branch_b").delete_branch("b"),
        {
            "open another branch": then(
                branched("c"), lambda lake: lake.catalog.table("d.t$branch_c").delete_branch("b")
            ),
            "or d.t itself": lambda lake: lake.table.delete_branch("b"),
        },
        ready=then(filled({}), branched("b")),
    ),
    "a branch of a table with a key is merged": Refusal(
        lambda lake: lake.table.merge_branch("b"),
        {
            "write the rows": written,
            "or fast-forward": then(lambda lake: lake.table.fast_forward("b")),
        },
        ready=then(filled(KEYED, key=["k"]), branched("b", snapshot=1)),
    ),
}


@each_remedy(REFUSALS)
def test_the_remedy_of_refused_maintenance_works(refusal: Refusal, words: str) -> None:
    check(refusal, words)
