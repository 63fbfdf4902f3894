"""Rows of a table that are removed or replaced, and columns of rows that are written again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from compaction.compact_manager import compact_manager_factory
from storage.arguments import checked
from storage.commit.table_commit import TableCommit, new_commit_user
from storage.errors import BadInput
from storage.format import BATCH_COMMIT_IDENTIFIER
from storage.maintenance.batch_tags import tag_batch_write
from storage.read.predicate import Predicate, as_predicate
from storage.row_level.assignments import Assignments
from storage.row_level.column_update import update_columns
from storage.row_level.row_changes import RowLevelOperation, change_rows
from tidelake.table_maintenance import TableMaintenance


class RowChanges(TableMaintenance):
    @checked
    def truncate(
        self,
        *,
        partition: Mapping[str, Any] | None = None,
        commit_user: str | None = None,
        identifier: int | None = None,
    ) -> int | None:
        """Remove all rows, or those of the partitions that agree with `partition` (column -> value), in one snapshot.

        Returns its id, None when (commit_user, identifier) was committed before. Older snapshots keep the rows.
        Raises BadInput for {}: leave `partition` out to remove all rows.
        """
        commit = TableCommit(self._context, self._user(commit_user))
        number = BATCH_COMMIT_IDENTIFIER if identifier is None else identifier
        return commit.truncate(number) if partition is None else commit.drop_partitions([partition], number)

    @checked
    def delete(
        self, where: Predicate | Any, *, commit_user: str | None = None, identifier: int | None = None
    ) -> int | None:
        """Remove the rows that match, in one snapshot. Of an append table they are marked in deletion vectors (option
        `deletion-vectors.enabled`), and gone for good once their files are compacted; of one with a primary key,
        deletes are written, which most merge engines take.

        where: made with `tidelake.col` or `pyarrow.compute`. Rows that others add meanwhile stay.
        Returns the id of the snapshot; None when no row matches, or (commit_user, identifier) was committed before.
        """
        return self._change_rows(
            RowLevelOperation(as_predicate(where, self._context.schema.arrow)), commit_user, identifier
        )

    @checked
    def update(
        self,
        where: Predicate | Any,
        values: Mapping[str, Any],
        *,
        commit_user: str | None = None,
        identifier: int | None = None,
    ) -> int | None:
        """Replace the rows that match, in one snapshot: as `delete`, with new rows in their place. With a primary key
        only where the newest row of a key wins (merge-engine = deduplicate).

        values: by column, what it becomes: a value, or an expression over the columns made with `pyarrow.compute`
        (`{"amount": pc.field("amount") * 2}`), which sees the row as it was.
        """
        change = RowLevelOperation(as_predicate(where, self._context.schema.arrow), Assignments(values))
        return self._change_rows(change, commit_user, identifier)

    def _change_rows(self, change: RowLevelOperation, commit_user: str | None, identifier: int | None) -> int | None:
        number = BATCH_COMMIT_IDENTIFIER if identifier is None else identifier
        published = change_rows(self._context, change, self._user(commit_user), number, compact_manager_factory())
        if published is not None and identifier is None:
            tag_batch_write(self._context, published)
        return published

    @checked
    def update_columns(
        self, rows: pa.Table, *, commit_user: str | None = None, identifier: int | None = None
    ) -> int | None:
        """Write columns of rows that are there again, in one snapshot; their other columns are not touched. Of tables
        with data evolution (options `row-tracking.enabled`, `data-evolution.enabled`).

        rows: `_ROW_ID`, as a scan gives it, and the columns to write. Others may write other columns meanwhile.
        Returns the id of the snapshot; None for no rows, and when (commit_user, identifier) was committed before.
        Raises BadInput for a row that is not there, or was deleted.
        """
        number = BATCH_COMMIT_IDENTIFIER if identifier is None else identifier
        published = update_columns(self._context, rows, self._user(commit_user), number)
        if published is not None and identifier is None:
            tag_batch_write(self._context, published)
        return published

    def _user(self, commit_user: str | None) -> str:
        if commit_user is not None and not commit_user.strip():
            raise BadInput("the commit user is blank; name it, or pass None for a new one")
        return commit_user or new_commit_user(self._context.options)
