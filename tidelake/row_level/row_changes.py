"""Deletes or replaces rows of a table, and writes columns of existing rows again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tidelake.compaction.compact_manager import compact_manager_factory
from tidelake.storage.base.arguments import checked
from tidelake.storage.base.errors import BadInput
from tidelake.storage.commit.table_commit import TableCommit, new_commit_user
from tidelake.storage.maintenance.automatic_tags import tag_batch_write
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER
from tidelake.storage.read.predicate import Predicate, as_predicate
from tidelake.storage.write.row_level.assignments import Assignments
from tidelake.storage.write.row_level.column_update import update_columns
from tidelake.storage.write.row_level.row_changes import RowLevelOperation, change_rows
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
        """Delete all rows, or those of the partitions that match `partition`, in one snapshot.

        Older snapshots keep the rows.

        partition: column -> value; other columns match any value

        Returns the id of the snapshot; None if (commit_user, identifier) was committed before. Raises BadInput for {}:
        leave `partition` out to delete all rows.
        """
        commit = TableCommit(self._context, self._user(commit_user))
        number = BATCH_COMMIT_IDENTIFIER if identifier is None else identifier
        return commit.truncate(number) if partition is None else commit.drop_partitions([partition], number)

    @checked
    def delete(
        self, where: Predicate | Any, *, commit_user: str | None = None, identifier: int | None = None
    ) -> int | None:
        """Delete the rows that match, in one snapshot. Rows that others add meanwhile stay.

        In an append table they are marked in deletion vectors (option `deletion-vectors.enabled`), and are removed when
        their files are compacted. In a table with a primary key, deletes are written, which most merge engines accept.

        where: made with `tidelake.col` or `pyarrow.compute`

        Returns the id of the snapshot; None if no row matches, or (commit_user, identifier) was committed before.
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
        """Replace the rows that match, in one snapshot. Works like `delete`, and adds the new rows.

        In a table with a primary key, the newest row of a key must win (merge-engine = deduplicate).

        values: the new value of each column: a value, or an expression over the old row made with `pyarrow.compute`
            (`{"amount": pc.field("amount") * 2}`)
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
        """Write columns of existing rows again, in one snapshot.

        Other columns are not changed, and others may write them.

        For tables with data evolution (options `row-tracking.enabled`, `data-evolution.enabled`).

        rows: `_ROW_ID`, as a scan returns it, and the columns to write

        Returns the id of the snapshot; None for no rows, and if (commit_user, identifier) was committed before. Raises
        BadInput for a row that does not exist, or was deleted.
        """
        number = BATCH_COMMIT_IDENTIFIER if identifier is None else identifier
        published = update_columns(self._context, rows, self._user(commit_user), number)
        if published is not None and identifier is None:
            tag_batch_write(self._context, published)
        return published

    def _user(self, commit_user: str | None) -> str:
        if commit_user is not None and not commit_user.strip():
            raise BadInput("the commit user is blank; pass a name, or None for a new one")
        return commit_user or new_commit_user(self._context.options)
