"""Finds the keys that changed after a dead letter, from the log: an older change must not overwrite a newer one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, TypeAlias

import pyarrow as pa

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.ingest.formats.base import DecodeFailure, Decoder, FailureKind, TableRows
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.sources.source import Source
from tidelake.storage.base.progress import counted
from tidelake.storage.model.format import KIND_COLUMN, RowKind

Key: TypeAlias = tuple[Any, ...]

Place: TypeAlias = tuple[TopicPartition, int, str | None]
"""Partition and offset of a dead letter, and the table that could not take it; None: any table."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a key.

    order: the values of the table's sequence fields; () if it has none.
    soft_delete: (1,) the row of a delete that keeps the deleted row in the table; None for any other change.
    """

    partition: TopicPartition
    offset: int
    order: tuple[Any, ...]
    soft_delete: pa.RecordBatch | None = None


@dataclass(slots=True)
class LaterChanges:
    """The changes in the log after the oldest dead letter of a partition, up to the table's position, by table and key.

    truncates: where the source emptied a table, and the pipeline did, too.
    undecodable: records that the pipeline could write and that can't be decoded now, with the reason, by table.
    complete_from: the offset from which on a partition's log still has all of these records, if it lacks some.
    """

    changes: Mapping[str, dict[Key, list[Change]]] = field(default_factory=lambda: defaultdict(dict))
    truncates: Mapping[str, list[tuple[TopicPartition, int]]] = field(default_factory=lambda: defaultdict(list))
    undecodable: Mapping[str, list[tuple[TopicPartition, int, str]]] = field(default_factory=lambda: defaultdict(list))
    complete_from: Mapping[TopicPartition, float] = field(default_factory=dict)

    def after(self, table: str, key: Key, partition: TopicPartition, offset: int) -> list[Change]:
        found = self.changes[table].get(key, ())
        return [change for change in found if change.partition != partition or change.offset > offset]

    def is_truncated_after(self, table: str, partition: TopicPartition, offset: int) -> bool | None:
        """Return whether the source emptied the table after this record. None: before or after, which is unknown."""
        found = self.truncates[table]
        if any(other == partition and at > offset for other, at in found):
            return True
        return None if any(other != partition for other, _ in found) else False

    def undecodable_after(self, table: str, partition: TopicPartition, offset: int) -> str | None:
        """Return the first record after this one that may have changed any key, with its reason; None if none did."""
        for other, at, reason in self.undecodable[table]:
            if other != partition or at > offset:
                return f"{other.topic}:{other.partition}:{at}: {reason}"
        return None


async def find_later_changes(
    source: Source,
    decoder: Decoder,
    wanted: Mapping[str, Collection[Key]],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[str, Mapping[TopicPartition, int]],
    unreplayed: Collection[Place],
    replayed: Collection[Place],
    order_columns: Mapping[str, Sequence[str]],
) -> LaterChanges:
    """Read the log from `starts`, each partition up to the largest of `ends`.

    wanted: the keys of the dead letters, for each table.
    starts: the offset after the oldest dead letter, for each partition.
    ends: the position of each table. Later records are not needed: the pipeline writes them later.
    unreplayed: records whose changes don't count: dead letters that are not replayed yet.
    replayed: records whose changes always count, whatever `ends` are: dead letters that were replayed.
    order_columns: the sequence fields of each table.

    Raises the source's errors.
    """
    partitions = await source.open(list(starts))
    bounds = await source.bounds(list(partitions | starts.keys()))
    end_offsets = {p: max((of_table.get(p, 0) for of_table in ends.values()), default=0) for p in starts}
    for partition, offset, _ in replayed:
        if partition in end_offsets:
            end_offsets[partition] = max(end_offsets[partition], offset + 1)
    firsts = {p: min(bounds[p].start, end_offsets[p]) for p in starts if p in bounds and bounds[p].start > starts[p]}
    starts = {**starts, **firsts}
    left = {p: end_offsets[p] for p in starts if starts[p] < end_offsets[p]}
    found = LaterChanges(complete_from=firsts)
    if not left:
        return found
    idle = {p: bounds[p].end if p in bounds else max(end_offsets.get(p, 0), starts.get(p, 0)) for p in partitions}
    reached = {p: starts[p] for p in left}
    total = sum(left[p] - starts[p] for p in left)
    async with aclosing(source.read({**idle, **reached})) as batches:
        with counted("reading the log after the dead letters", total, "records") as advance:
            async for raw in batches:
                partition = TopicPartition(raw.topic, raw.partition)
                if partition in left:
                    batch = decoder.decode(raw)
                    for rows in batch.tables:
                        _record_change(found, rows, raw, wanted, ends, unreplayed, replayed, order_columns)
                    _record_failures(found, batch.failures, partition, ends, unreplayed)
                    until = min(raw.next_offset, left[partition])
                    advance(max(0, until - reached[partition]))
                    reached[partition] = max(until, reached[partition])
                    if raw.next_offset >= left[partition]:
                        del left[partition]
                if not left:
                    break
    found.complete_from = {**firsts, **dict.fromkeys(left, inf)}  # the source ended before it had all of these
    return found


def _record_change(
    found: LaterChanges,
    rows: TableRows,
    raw: RawBatch,
    wanted: Mapping[str, Collection[Key]],
    ends: Mapping[str, Mapping[TopicPartition, int]],
    unreplayed: Collection[Place],
    replayed: Collection[Place],
    order_columns: Mapping[str, Sequence[str]],
) -> None:
    table, partition = rows.target.name, TopicPartition(raw.topic, raw.partition)
    if table not in wanted:
        return
    end = ends[table].get(partition, 0)
    orders = row_values(rows.rows, order_columns[table])
    kinds = rows.rows[KIND_COLUMN].to_pylist()
    for number, (key, offset, order) in enumerate(zip(keys_of(rows), rows.offsets.tolist(), orders, strict=True)):
        place = partition, offset
        is_in_table = not places_of(*place, table).isdisjoint(replayed)
        is_in_table = is_in_table or (offset < end and places_of(*place, table).isdisjoint(unreplayed))
        if key in wanted[table] and is_in_table:
            is_soft_delete = rows.target.deleted_at_column != "" and kinds[number] == RowKind.DELETE
            soft_delete = rows.rows.slice(number, 1) if is_soft_delete else None
            found.changes[table].setdefault(key, []).append(Change(partition, offset, order, soft_delete))


_OF_OTHER_SCHEMAS: Final = (FailureKind.UNKNOWN_COLUMN, FailureKind.NARROW_COLUMN, FailureKind.SCHEMA_CHANGE)
"""Failures of records that become no dead letters: the pipeline changes the table, or stops."""


def _record_failures(
    found: LaterChanges,
    failures: Sequence[DecodeFailure],
    partition: TopicPartition,
    ends: Mapping[str, Mapping[TopicPartition, int]],
    unreplayed: Collection[Place],
) -> None:
    """Note the truncates that the pipeline has applied, and the records that it wrote under another schema. Those that
    its operator left out are dead letters.
    """
    for failure in failures:
        table = failure.table_name
        if table is None or table not in ends or failure.offset >= ends[table].get(partition, 0):
            continue
        if not places_of(partition, failure.offset, table).isdisjoint(unreplayed):
            continue
        if failure.kind is FailureKind.TRUNCATE:
            found.truncates[table].append((partition, failure.offset))
        elif failure.kind in _OF_OTHER_SCHEMAS:
            found.undecodable[table].append((partition, failure.offset, failure.reason))


def places_of(partition: TopicPartition, offset: int, table: str) -> set[Place]:
    """Return the places that the dead letter of a record may have for this table."""
    return {(partition, offset, None), (partition, offset, table)}


def keys_of(rows: TableRows) -> list[Key]:
    return row_values(rows.rows, rows.target.schema.primary_keys)


def row_values(rows: pa.RecordBatch, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the values of these columns for each row, for comparison.

    Timestamps are numbers, because Python's datetime lacks nanoseconds and some years that a column may have.
    """
    if not columns:
        return [()] * rows.num_rows
    return list(zip(*(_comparable(rows[name]).to_pylist() for name in columns), strict=True))


def _comparable(column: pa.Array) -> pa.Array:
    return column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
