"""Plans a replay: decides what to do with each dead letter, from decoded rows and later changes. Writes nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import BadInput
from tidelake.ingest.formats.base import TableRows
from tidelake.ingest.replay.dead_letter_batches import DeadLetter, place_of
from tidelake.ingest.replay.later_changes import Change, Key, LaterChanges, keys_of, row_values
from tidelake.storage.merge.aggregate_functions import is_order_free
from tidelake.storage.model.options import MergeEngine
from tidelake.storage.model.table import TableContext

REPLAYED: Final = "replayed"
SUPERSEDED: Final = "superseded"  # all its rows have changed again since
NO_ROWS: Final = "no rows"  # the record is skipped intentionally


@dataclass(frozen=True, slots=True)
class ReplayTable:
    """A table of a replay.

    is_order_independent: rows can be written in any order: the table has no key, or aggregates that don't depend on
        order
    is_newest_wins: an older row of a key is left out if a newer one exists
    order_columns: the sequence fields
    """

    name: str
    context: TableContext

    @property
    def is_order_independent(self) -> bool:
        schema = self.context.schema
        return not schema.has_primary_key or is_order_free(schema, self.context.options)

    @property
    def is_newest_wins(self) -> bool:
        return self.context.options.merge_engine is MergeEngine.DEDUPLICATE

    @property
    def order_columns(self) -> tuple[str, ...]:
        return tuple(self.context.options.sequence_fields)


@dataclass(slots=True)
class ReplayPlan:
    """The plan of a replay.

    outcomes: the outcome of each dead letter, by its id
    remaining: the reason of each dead letter that can't be replayed, by its id
    left_over: the tables that still lack a dead letter whose rows others have, by its id: it becomes one for each
    rows: the rows to write to each table, in order. Deletes are not yet those of `deletes: soft`
    """

    outcomes: dict[str, str] = field(default_factory=dict)
    remaining: dict[str, str] = field(default_factory=dict)
    left_over: dict[str, list[str]] = field(default_factory=dict)
    rows: dict[str, list[TableRows]] = field(default_factory=lambda: defaultdict(list))


@dataclass(frozen=True, slots=True)
class DecodedDeadLetters:
    """The decoded dead letters of one raw batch.

    dead_letters: the dead letters.
    tables: their rows.
    failed: offset to the reason why the record still can't be decoded.
    """

    dead_letters: Sequence[DeadLetter]
    tables: Sequence[TableRows]
    failed: Mapping[int, str]


def plan_replay(
    decoded: Sequence[DecodedDeadLetters],
    tables: Mapping[str, ReplayTable],
    later: LaterChanges,
    committed: Collection[str] = (),
    marked: Collection[str] = (),
) -> ReplayPlan:
    """Plan the replay.

    tables: the existing tables, by name.
    committed: tables that have the rows of this replay already, from an attempt that was interrupted.
    marked: ids of the dead letters whose rows these are.

    Raises BadInput if one of them can no longer be decoded, so that its tables are unknown.
    """
    plan = ReplayPlan()
    for part in decoded:
        kept, undecided, has_rows = _decide_all(part, tables, later, committed)
        reasons = {**{offset: next(iter(of_tables.values())) for offset, of_tables in undecided.items()}, **part.failed}
        for dead_letter in part.dead_letters:
            id_, offset = dead_letter["id"], dead_letter["offset"]
            is_written = id_ in marked and _is_written(dead_letter, kept, part.failed, committed)
            if is_written:
                reasons.pop(offset, None)
                plan.left_over[id_] = list(undecided.get(offset, ()))
            elif committed and id_ not in marked:
                reasons[offset] = "the replay had begun without it. Replay again"
            if offset in reasons:
                plan.remaining[id_] = reasons[offset]
            elif not is_written and offset not in has_rows:
                plan.outcomes[id_] = NO_ROWS
            else:
                is_kept = is_written or any(offset in offsets for offsets in kept.values())
                plan.outcomes[id_] = REPLAYED if is_kept else SUPERSEDED
        for rows in part.tables:
            if rows.target.name in committed:
                continue
            chosen = [
                number
                for number, offset in enumerate(rows.offsets.tolist())
                if offset not in reasons and (number in kept[rows.target.name].get(offset, ()))
            ]
            if chosen:
                partition = place_of(part.dead_letters[0])[0]
                plan.rows[rows.target.name].append(_with_soft_deletes_since(rows, chosen, later, partition))
    return plan


def _is_written(
    dead_letter: DeadLetter,
    kept: Mapping[str, Mapping[int, Collection[int]]],
    failed: Mapping[int, str],
    committed: Collection[str],
) -> bool:
    """Return whether a table has the rows of this dead letter of an interrupted replay."""
    offset, table = dead_letter["offset"], dead_letter["table"]
    if committed and table is None and offset in failed:
        raise BadInput(
            f"the replay {dead_letter['replay_id']} was interrupted, and its dead letter "
            f"{dead_letter['topic']}:{dead_letter['partition']}:{offset} can't be decoded any more: {failed[offset]}. "
            "Replay with the configuration that could decode it"
        )
    return table in committed or any(offset in kept.get(name, ()) for name in committed)


def _with_soft_deletes_since(
    rows: TableRows, chosen: Sequence[int], later: LaterChanges, partition: TopicPartition
) -> TableRows:
    """Return the chosen rows, and the deletes after them that found no row to keep, each before the newer rows.

    chosen: row numbers.
    """
    offsets = rows.offsets[list(chosen)]
    own = rows.rows.take(pa.array(chosen, pa.int64()))
    if not rows.target.deleted_at_column:
        return TableRows(rows.target, own, offsets)
    parts, at = [own], offsets.tolist()
    keys = keys_of(TableRows(rows.target, own, offsets))
    for key, offset in zip(keys, offsets.tolist(), strict=True):
        changes = later.after(rows.target.name, key, partition, offset)
        for change in changes if _are_soft_deletes(changes) else ():
            assert change.soft_delete is not None
            parts.append(change.soft_delete)
            at.append(change.offset if change.partition == partition else offset)
    order = np.argsort(at, kind="stable")
    combined = pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
    return TableRows(rows.target, combined.take(pa.array(order)), np.array(at, np.int64)[order])


def _are_soft_deletes(changes: Sequence[Change]) -> bool:
    """Return whether all changes only set the time of a delete: the row keeps its values."""
    return all(change.soft_delete is not None for change in changes)


def _decide_all(
    part: DecodedDeadLetters, tables: Mapping[str, ReplayTable], later: LaterChanges, committed: Collection[str]
) -> tuple[dict[str, dict[int, set[int]]], dict[int, dict[str, str]], set[int]]:
    """Return (table to offset to the rows to write, offset to table to the reason why its letter stays, offsets with
    rows).
    """
    kept: dict[str, dict[int, set[int]]] = defaultdict(dict)
    reasons: dict[int, dict[str, str]] = defaultdict(dict)
    has_rows: set[int] = set()
    partition = place_of(part.dead_letters[0])[0]
    for rows in part.tables:
        table = tables[rows.target.name]
        offsets = rows.offsets.tolist()
        has_rows.update(offsets)
        if table.name in committed:
            kept[table.name] = {offset: set() for offset in offsets}
            continue
        lacking = set() if rows.unavailable is None else set(rows.unavailable.rows.tolist())
        keys: list[Key] = [()] * len(offsets) if table.is_order_independent else keys_of(rows)
        orders = row_values(rows.rows, table.order_columns)
        for number, (key, offset, order) in enumerate(zip(keys, offsets, orders, strict=True)):
            if rows.target.versions is not None:
                reasons[offset][table.name] = (
                    f"{table.name} keeps versions of rows, which a replay can't split while the pipeline writes them. "
                    "Read the record again: `tidelake ingest run … --rewind-to TABLE=…`"
                )
                continue
            if number in lacking:
                reasons[offset][table.name] = (
                    "the record leaves out values that did not change, and a replay does not look them up"
                )
                continue
            is_log_unavailable = offset + 1 < later.complete_from.get(partition, 0)
            verdict = _decide_row(table, later, is_log_unavailable, key, offset, order, partition)
            if verdict is True:
                kept[table.name].setdefault(offset, set()).add(number)
            elif verdict is not False:
                reasons[offset][table.name] = verdict
    return kept, reasons, has_rows


def _decide_row(
    table: ReplayTable,
    later: LaterChanges,
    is_log_unavailable: bool,
    key: Key,
    offset: int,
    order: tuple[Any, ...],
    partition: Any,
) -> bool | str:
    """Return whether the row is written, or the reason why its dead letter must stay."""
    is_truncated = later.is_truncated_after(table.name, partition, offset)
    if is_truncated:
        return False
    if is_truncated is None:
        return (
            f"the source has emptied {table.name}, and it is unknown whether before or after this record: the truncate "
            "is in another partition"
        )
    if table.is_order_independent:
        return True
    if is_log_unavailable:
        return (
            f"the log no longer has the later records, so it is unknown whether {table.name} has a newer row of the "
            f"key {_key_text(key)}"
        )
    if (undecodable := later.undecodable_after(table.name, partition, offset)) is not None:
        return f"it is unknown whether {table.name} has a newer row: a later record can't be decoded now: {undecodable}"
    newer = later.after(table.name, key, partition, offset)
    if not newer or _are_soft_deletes(newer):
        return True
    if not table.is_newest_wins:
        engine = table.context.options.merge_engine
        return (
            f"{table.name} has newer changes of the key {_key_text(key)}, and merge-engine = {engine} can't apply an "
            "older change before them"
        )
    is_descending = table.context.options.sequence_descending
    return bool(table.order_columns) and all(_is_newer_than(order, change, is_descending) for change in newer)


def _is_newer_than(order: tuple[Any, ...], change: Change, is_descending: bool) -> bool:
    """Return whether `order` is after the change, by the sequence fields. Null is the oldest. If they are equal, the
    later record wins.
    """
    for own, other in zip(order, change.order, strict=True):
        if own != other:
            if own is None or other is None:
                return other is None
            return bool(own < other) if is_descending else bool(own > other)
    return False


def _key_text(key: Key) -> str:
    return f"({', '.join(map(repr, key))})"
