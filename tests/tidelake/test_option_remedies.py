"""Options that are refused name other options, or none, as the remedy: each table that a message describes is made."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pytest

import tidelake
from tidelake.storage.ddl.option_validation import CONFLICTS

COLUMNS: Final = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("w", pa.int64()), ("p", pa.string())])
ROWS: Final = pa.table({"k": [1, 2], "v": [3, 4], "w": [5, 6], "p": ["a", "b"]}, COLUMNS)


class Made(NamedTuple):
    """A table: its options, key and partition columns."""

    options: Mapping[str, str] = {}
    key: Sequence[str] = ("k",)
    by: Sequence[str] = ()

    def make(self) -> tidelake.Table:
        catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
        catalog.create_database("d")
        return catalog.create_table(
            "d.t", COLUMNS, primary_key=list(self.key), partition_by=list(self.by), options=self.options
        )


class OptionRefusal(NamedTuple):
    """remedies: words of the message, and a table that they mean."""

    refused: Made
    remedies: Sequence[tuple[str, Made]]


AGGREGATION: Final = {"merge-engine": "aggregation"}
PARTIAL_UPDATE: Final = {"merge-engine": "partial-update"}
FIRST_ROW: Final = {"merge-engine": "first-row"}
VECTORS: Final = {"deletion-vectors.enabled": "true"}
FULL: Final = {"changelog-producer": "full-compaction"}
LOOKUP: Final = {"changelog-producer": "lookup"}
UNAWARE: Final = {"bucket": "-1"}
TRACKING: Final = {**UNAWARE, "row-tracking.enabled": "true"}
GROUP: Final = {**PARTIAL_UPDATE, "fields.v.sequence-group": "w"}
ON_DELETE: Final = "partial-update.remove-record-on-delete"
ON_SEQUENCE: Final = "partial-update.remove-record-on-sequence-group"

APPEND: Final = ()
OF_CONFLICTS: Final = [
    OptionRefusal(
        Made({"primary-key.nullable": "true"}, APPEND),
        [("name one", Made({"primary-key.nullable": "true"})), ("unset the option", Made({}, APPEND))],
    ),
    OptionRefusal(
        Made({"primary-key.nullable": "true"}, ("k",), ("p",)),
        [
            ("add the partition columns to the key", Made({"primary-key.nullable": "true"}, ("k", "p"), ("p",))),
            ("unset the option", Made({}, ("k",), ("p",))),
        ],
    ),
    OptionRefusal(Made(LOOKUP, APPEND), [("name a primary key", Made(LOOKUP)), ("unset the option", Made({}, APPEND))]),
    OptionRefusal(
        Made({**FIRST_ROW, **FULL}),
        [("only allows none or lookup", Made({**FIRST_ROW, **LOOKUP})), ("none or lookup", Made(FIRST_ROW))],
    ),
    OptionRefusal(
        Made({**FIRST_ROW, "sequence.field": "v"}),
        [("unset one of them", Made(FIRST_ROW)), ("unset one of them", Made({"sequence.field": "v"}))],
    ),
    OptionRefusal(
        Made({**LOOKUP, "streaming-read-overwrite": "true"}),
        [("unset one of them", Made(LOOKUP)), ("unset one of them", Made({"streaming-read-overwrite": "true"}))],
    ),
    OptionRefusal(
        Made({"streaming-read-overwrite": "true"}, APPEND),
        [
            (
                "set streaming-read-append-overwrite instead",
                Made({"streaming-read-append-overwrite": "true"}, APPEND),
            )
        ],
    ),
    OptionRefusal(
        Made({**LOOKUP, "full-compaction.delta-commits": "3"}),
        [
            ("set changelog-producer to full-compaction", Made({**FULL, "full-compaction.delta-commits": "3"})),
            ("unset one of them", Made({"full-compaction.delta-commits": "3"})),
            ("unset one of them", Made(LOOKUP)),
        ],
    ),
    OptionRefusal(
        Made({**UNAWARE, "full-compaction.delta-commits": "3"}, APPEND), [("unset it", Made(UNAWARE, APPEND))]
    ),
    OptionRefusal(
        Made({**VECTORS, **FULL}),
        [
            ("set changelog-producer to lookup", Made({**VECTORS, **LOOKUP})),
            ("unset one of them", Made(VECTORS)),
            ("unset one of them", Made(FULL)),
        ],
    ),
    OptionRefusal(Made({**VECTORS, **FIRST_ROW}), [("unset it", Made(FIRST_ROW))]),
    OptionRefusal(
        Made({**TRACKING, "bucket": "2", "bucket-key": "k"}, APPEND),
        [("an append table with bucket = -1", Made(TRACKING, APPEND))],
    ),
    OptionRefusal(
        Made({**UNAWARE, "data-evolution.enabled": "true"}, APPEND),
        [("row-tracking.enabled = true", Made({**TRACKING, "data-evolution.enabled": "true"}, APPEND))],
    ),
]
OF_OTHER_RULES: Final = [
    OptionRefusal(
        Made({**UNAWARE, "bucket-key": "k"}, APPEND),
        [
            ("set bucket", Made({"bucket": "2", "bucket-key": "k"}, APPEND)),
            ("unset bucket-key", Made(UNAWARE, APPEND)),
        ],
    ),
    OptionRefusal(
        Made({"bucket": "2"}, APPEND),
        [
            ("needs bucket-key", Made({"bucket": "2", "bucket-key": "v"}, APPEND)),
            ("or set bucket = -1", Made(UNAWARE, APPEND)),
        ],
    ),
    OptionRefusal(
        Made({"bucket": "0"}),
        [
            ("1 or more for a fixed number", Made({"bucket": "1"})),
            ("-1 to let the writer choose", Made({"bucket": "-1"})),
            ("or -2 (primary-key tables only)", Made({"bucket": "-2"})),
        ],
    ),
    OptionRefusal(
        Made({**PARTIAL_UPDATE, "ignore-delete": "true", ON_DELETE: "true"}),
        [
            ("unset one of them", Made({**PARTIAL_UPDATE, "ignore-delete": "true"})),
            ("unset one of them", Made({**PARTIAL_UPDATE, ON_DELETE: "true"})),
        ],
    ),
    OptionRefusal(
        Made({**GROUP, ON_DELETE: "true"}),
        [
            ("unset one of them", Made(GROUP)),
            ("unset one of them", Made({**PARTIAL_UPDATE, ON_DELETE: "true"})),
            (f"or name sequence fields in {ON_SEQUENCE} instead", Made({**GROUP, ON_SEQUENCE: "v"})),
        ],
    ),
    OptionRefusal(
        Made({**PARTIAL_UPDATE, "fields.w.aggregate-function": "sum"}),
        [
            (
                "name it in a 'fields.<column>.sequence-group'",
                Made({**GROUP, "fields.w.aggregate-function": "sum"}),
            ),
            ("or use merge-engine = aggregation", Made({**AGGREGATION, "fields.w.aggregate-function": "sum"})),
        ],
    ),
    OptionRefusal(
        Made({**GROUP, "fields.p.sequence-group": "w"}), [("name it in only one of the groups", Made(GROUP))]
    ),
    OptionRefusal(
        Made(
            {
                **AGGREGATION,
                "fields.v.aggregate-function": "max",
                "fields.v.ignore-retract": "true",
                "aggregation.remove-record-on-delete": "true",
            }
        ),
        [
            (
                "unset one of them",
                Made({**AGGREGATION, "fields.v.aggregate-function": "max", "fields.v.ignore-retract": "true"}),
            ),
            (
                "unset one of them",
                Made(
                    {
                        **AGGREGATION,
                        "fields.v.aggregate-function": "max",
                        "aggregation.remove-record-on-delete": "true",
                    }
                ),
            ),
        ],
    ),
    OptionRefusal(
        Made({**AGGREGATION, "sequence.field": "v", "fields.v.aggregate-function": "sum"}),
        [("unset fields.v.aggregate-function", Made({**AGGREGATION, "sequence.field": "v"}))],
    ),
    OptionRefusal(
        Made({"snapshot.num-retained.min": "10", "snapshot.num-retained.max": "5"}),
        [("raise the latter", Made({"snapshot.num-retained.min": "10", "snapshot.num-retained.max": "10"}))],
    ),
    OptionRefusal(
        Made({"partition.mark-done-action": "mark-event"}),
        [("Set success-file", Made({"partition.mark-done-action": "success-file"}))],
    ),
    OptionRefusal(
        Made({"sequence.snapshot-ordering": "true", "write-only": "true"}),
        [("Use sequence.field", Made({"sequence.field": "v"}))],
    ),
    OptionRefusal(Made({"upsert-key": "k"}, APPEND), [("Create the table with a primary key", Made())]),
    OptionRefusal(
        Made({"manifest.format": "json"}),
        [("Choose one of them", Made({"manifest.format": form})) for form in ("avro", "orc", "parquet")],
    ),
    OptionRefusal(Made({"num-levels": "1"}), [("must be at least 2", Made({"num-levels": "2"}))]),
    OptionRefusal(Made({"path": "/elsewhere"}), [("unset it", Made())]),
    OptionRefusal(Made({"auto-create": "true"}), [("unset it", Made())]),
]
CASES: Final = [
    (refusal.refused, words, made) for refusal in (*OF_CONFLICTS, *OF_OTHER_RULES) for words, made in refusal.remedies
]


def message_of(refused: Made) -> str:
    with pytest.raises(tidelake.TidelakeError) as raised:
        refused.make()
    return str(raised.value)


@pytest.mark.parametrize(
    ("refused", "words", "made"), CASES, ids=[f"{one.options}: {words}" for one, words, _ in CASES]
)
def test_the_table_that_a_refusal_describes_can_be_made_written_and_read(refused: Made, words: str, made: Made) -> None:
    assert words in message_of(refused)
    table = made.make()
    table.append(ROWS)
    if made.options.get("bucket") == "-2":
        table.compact()  # rows wait for their buckets
    assert table.scan().to_arrow().num_rows == 2


def test_every_conflict_of_options_has_a_case() -> None:
    """`sequence.snapshot-ordering` is refused before: it is not supported."""
    messages = [message_of(refusal.refused) for refusal in OF_CONFLICTS]
    missing = [
        conflict.reason_and_remedy
        for conflict in CONFLICTS
        if conflict.option != "sequence.snapshot-ordering"
        and not any(conflict.reason_and_remedy in message for message in messages)
    ]
    assert missing == []


def test_the_size_that_a_message_asks_for_is_enough() -> None:
    (size,) = re.findall(r"set it to (\d+) bytes or more", message_of(Made({"write-buffer-size": "1 kb"})))
    Made({"write-buffer-size": f"{size} b"}).make().append(ROWS)
    assert size in message_of(Made({"write-buffer-size": f"{int(size) - 1} b"}))
