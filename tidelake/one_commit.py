"""A change of a table's rows in one commit, without a writer that stays open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar

import pyarrow as pa

from tidelake.compaction.compact_manager import compact_manager_factory
from tidelake.errors import BadInput
from tidelake.frames.incoming import Rows, incoming_rows
from tidelake.storage.commit.table_commit import TableCommit, new_commit_user
from tidelake.storage.maintenance.automatic_tags import tag_batch_write
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.conditions import as_predicate
from tidelake.storage.read.evolution.tracked_columns import tracked_schema
from tidelake.storage.read.predicate import Predicate
from tidelake.storage.write.row_level.assignments import Assignments
from tidelake.storage.write.row_level.column_update import update_columns
from tidelake.storage.write.row_level.merging import MergeOperation, WhenMatched, WhenNotMatched
from tidelake.storage.write.row_level.row_changes import RowLevelOperation, change_rows

C = TypeVar("C", bound=StrEnum)


def commit_user_of(context: TableContext, given: str | None) -> str:
    """Return the commit user of a caller; None gives a new one. Raises BadInput for a blank name."""
    if given is not None and not given.strip():
        raise BadInput("the commit user is blank; pass a name, or None for a new one")
    return given or new_commit_user(context.options)


class OneCommit:
    """One commit of a user. Each call makes it, and returns the snapshot's id; None if it changes nothing.

    identifier: the commit's identifier, by which a replay is recognised. None makes a batch write, which is never
        replayed, and which the options may tag.
    """

    def __init__(self, context: TableContext, commit_user: str | None, identifier: int | None) -> None:
        self._context = context
        self._user = commit_user_of(context, commit_user)
        self._is_batch = identifier is None
        self._identifier = BATCH_COMMIT_IDENTIFIER if identifier is None else identifier

    def truncate(self, partition: Mapping[str, Any] | None) -> int | None:
        commit = TableCommit(self._context, self._user)
        if partition is None:
            return commit.truncate(self._identifier)
        return commit.drop_partitions([partition], self._identifier)

    def delete(self, where: Predicate | Any) -> int | None:
        return self._change_rows(RowLevelOperation(self._condition(where)))

    def update(self, where: Predicate | Any, values: Mapping[str, Any]) -> int | None:
        return self._change_rows(RowLevelOperation(self._condition(where), Assignments(values)))

    def merge(self, source: Rows, on: Sequence[str], when_matched: str, when_not_matched: str) -> int | None:
        matched = _choice("when_matched", when_matched, WhenMatched)
        not_matched = _choice("when_not_matched", when_not_matched, WhenNotMatched)
        found = incoming_rows(source, self._context.schema.arrow, f"{self._context.name}: merge()")
        rows = found if isinstance(found, pa.Table) else found.read_all()
        return self._change_rows(MergeOperation.of(self._context, rows, on, matched, not_matched))

    def update_columns(self, rows: pa.Table) -> int | None:
        return self._tagged(update_columns(self._context, rows, self._user, self._identifier))

    def _condition(self, where: Predicate | Any) -> Predicate:
        return as_predicate(where, tracked_schema(self._context))

    def _change_rows(self, change: RowLevelOperation | MergeOperation) -> int | None:
        published = change_rows(self._context, change, self._user, self._identifier, compact_manager_factory())
        return self._tagged(published)

    def _tagged(self, published: int | None) -> int | None:
        if published is not None and self._is_batch:
            tag_batch_write(self._context, published)
        return published


def _choice(name: str, given: object, of: type[C]) -> C:
    if given not in tuple(of):
        raise BadInput(f"merge({name}={given!r}): expected one of {', '.join(of)}")
    return of(str(given))
