"""Samples of topics, made of records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tidelake.ingest.formats.recognition import Recognizer
from tidelake.ingest.proposal.proposed_tables import ProposedTables, propose_tables, recognize
from tidelake.ingest.proposal.topic_samples import TopicSample
from tidelake.ingest.raw_batch import RawBatch, binary_column

Record = tuple[Any, Any]
"""Key and value: None, bytes, or what becomes JSON."""


def as_bytes(part: Any) -> bytes | None:
    return part if part is None or isinstance(part, bytes) else json.dumps(part).encode()


def sample(topic: str, records: Sequence[Record], partition: int = 0) -> TopicSample:
    if not records:
        return TopicSample(topic, 1)
    n = len(records)
    keys, values = (binary_column([as_bytes(record[at]) for record in records]) for at in (0, 1))
    raw = RawBatch(topic, partition, np.arange(n), np.full(n, 1_795_196_040_376), keys, values, n)
    return TopicSample(topic, 1, True, [raw])


def change(
    row: Mapping[str, Any] | None = None,
    *,
    op: str = "c",
    table: str = "orders",
    schema: str | None = None,
    db: str = "shop",
) -> Any:
    """A record of Debezium without a schema. row: default: {"id": 1}."""
    source = {"connector": "postgresql", "db": db, "schema": schema, "table": table}
    image = "before" if op == "d" else "after"
    return {"op": op, image: row or {"id": 1}, "source": source}


def proposed(*samples: TopicSample, format_: str = "debezium-json", database: str | None = None) -> ProposedTables:
    recognized = {one.topic: recognize(one, Recognizer()) for one in samples}
    return propose_tables(samples, recognized, format_, {}, database)
