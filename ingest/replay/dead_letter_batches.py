"""Converts dead letters back to raw batches, so that the pipeline's decoder reads them like the original records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.ingest.raw_batch import RawBatch, binary_column, timestamp_types_of

DeadLetter = dict[str, Any]
"""A row of the dead-letter table, as `dead_letter_table.values_of` returns it."""


def place_of(dead_letter: DeadLetter) -> tuple[TopicPartition, int]:
    return TopicPartition(dead_letter["topic"], dead_letter["partition"]), dead_letter["offset"]


def raw_batches(dead_letters: Sequence[DeadLetter]) -> Iterator[tuple[RawBatch, list[DeadLetter]]]:
    """Yield raw batches. Each comes with its dead letters, in the order of the batch's rows.

    dead_letters: in the order of topic, partition and offset.

    Two dead letters may have the same topic, partition and offset, if a topic was created again. They get different
    batches, because the offsets of a batch rise. So do dead letters of different tables.
    """
    tables = sorted({one.get("table") for one in dead_letters}, key=lambda table: table or "")
    for table in tables:
        yield from _batches_of_table([one for one in dead_letters if one.get("table") == table])


def _batches_of_table(dead_letters: Sequence[DeadLetter]) -> Iterator[tuple[RawBatch, list[DeadLetter]]]:
    for partition, of_partition in groupby(dead_letters, lambda one: place_of(one)[0]):
        batch: list[DeadLetter] = []
        for dead_letter in of_partition:
            if batch and batch[-1]["offset"] >= dead_letter["offset"]:
                yield _raw_batch(partition, batch), batch
                batch = []
            batch.append(dead_letter)
        yield _raw_batch(partition, batch), batch


def _raw_batch(partition: TopicPartition, dead_letters: list[DeadLetter]) -> RawBatch:
    times = [-1 if one["timestamp"] is None else one["timestamp"] for one in dead_letters]
    headers = {
        row: tuple((header["name"], header["value"]) for header in one["headers"])
        for row, one in enumerate(dead_letters)
        if one["headers"]
    }
    return RawBatch(
        partition.topic,
        partition.partition,
        np.array([one["offset"] for one in dead_letters], np.int64),
        np.array(times, np.int64),
        binary_column([one["key"] for one in dead_letters]),
        binary_column([one["value"] for one in dead_letters]),
        dead_letters[-1]["offset"] + 1,
        headers,
        timestamp_types_of([one["timestamp_type"] for one in dead_letters]),
    )
