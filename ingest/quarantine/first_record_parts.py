"""Handles records from which a table should be created, but can't be, because they don't show its columns.

They are bad records, which may be set aside. Each gets a separate part of the batch, and the next record creates the
table.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeAlias

import numpy as np

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import TableNotInferred
from tidelake.ingest.formats.base import DecodedBatch, DecodeFailure, FailureKind
from tidelake.ingest.formats.table_rows import keep_records
from tidelake.ingest.raw_batch import RawBatch

Tolerates: TypeAlias = Callable[[TopicPartition, int], bool]
"""(partition, offset): returns whether a bad record there may become a dead letter."""

Decode: TypeAlias = Callable[[RawBatch], Awaitable[DecodedBatch]]

Create: TypeAlias = Callable[[RawBatch, DecodedBatch], Awaitable[bool]]
"""Creates tables for records without a table. Returns whether any was created. Raises TableNotInferred."""


async def decoded_parts(
    batch: RawBatch,
    decode: Decode,
    create: Create,
    tolerates: Tolerates,
) -> AsyncIterator[tuple[RawBatch, DecodedBatch]]:
    """Decode the batch in one or several parts, in order, and create the tables of its records.

    Raises TableNotInferred if `tolerates` returns False.
    """
    begin = 0
    while True:
        rest = batch.slice(begin, len(batch))
        decoded = await decode(rest)
        try:
            if decoded.creating and await create(rest, decoded):
                decoded = await decode(rest)
        except TableNotInferred as error:
            if not _tolerates(rest, error, tolerates):
                raise
            if error.row:
                before = rest.slice(0, error.row)
                yield before, await decode(before)
            end, failures = begin + error.row, list[DecodeFailure]()
            # Neighbouring records mostly fail alike. Decoding the whole rest of the batch for each would take long.
            while failure := await _failure(batch.slice(end, end + 1), len(failures), decode, create, tolerates):
                failures.append(failure)
                end += 1
            part = batch.slice(end - len(failures), end)
            yield part, _with_failures(await decode(part), failures)
            if end == len(batch):
                return
            begin = end
        else:
            yield rest, decoded
            return


def _with_failures(decoded: DecodedBatch, failures: Sequence[DecodeFailure]) -> DecodedBatch:
    """Return a part whose records create no table. They have rows for other tables that exist.

    decoded: the part. It may have been decoded after a later record created the table.
    """
    if any(failure.table is None for failure in failures):
        return DecodedBatch((), tuple(failures), {}, {})
    failed = {(failure.offset, failure.table) for failure in failures}
    tables = []
    for rows in decoded.tables:
        keep = np.array([(offset, rows.target.name) not in failed for offset in rows.offsets.tolist()])
        if keep.any():
            tables.append(rows if keep.all() else keep_records(rows, keep))
    others = [one for one in decoded.failures if one.table_name and (one.offset, one.table_name) not in failed]
    both = sorted((*others, *failures), key=lambda failure: failure.row)
    return DecodedBatch(tuple(tables), tuple(both), {}, {})


async def _failure(
    record: RawBatch, number: int, decode: Decode, create: Create, tolerates: Tolerates
) -> DecodeFailure | None:
    """Return the failure of a single record. None: the record creates a table or needs none, or no record is left."""
    if not len(record):
        return None
    decoded = await decode(record)
    try:
        if decoded.creating:
            await create(record, decoded)
    except TableNotInferred as error:
        if _tolerates(record, error, tolerates):
            (source,) = decoded.creating
            kind, of = FailureKind.BAD_RECORD, error.table
            return DecodeFailure(number, int(record.offsets[0]), kind, error.reason, source, table=of)
    return None


def _tolerates(batch: RawBatch, error: TableNotInferred, tolerates: Tolerates) -> bool:
    return tolerates(TopicPartition(batch.topic, batch.partition), int(batch.offsets[error.row]))
