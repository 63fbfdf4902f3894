"""The calls of a table that change its rows in one snapshot each, without a writer that stays open."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa

from tidelake.bootstrap import Bootstrap
from tidelake.errors import BadInput
from tidelake.frames.incoming import Rows
from tidelake.one_commit import OneCommit, commit_user_of
from tidelake.storage.base.arguments import checked, checked_except
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.predicate import Predicate
from tidelake.writer import Writer


class BatchWrites(ABC):
    """Writes, merges, updates and deletes rows, each call in one snapshot.

    commit_user, identifier: for a caller that may repeat a call. The pair names the commit, so a replay is recognised
        and changes nothing. Default: a batch write, which is never replayed.
    """

    @property
    @abstractmethod
    def context(self) -> TableContext: ...

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    @abstractmethod
    def primary_key(self) -> tuple[str, ...]: ...

    @abstractmethod
    def writer(
        self, *, commit_user: str | None = None, overwrite: bool | Mapping[str, Any] | None = None
    ) -> Writer: ...

    @checked_except("rows")
    def append(self, rows: Rows, *, commit_user: str | None = None, identifier: int | None = None) -> int | None:
        """Write rows in one snapshot. In a table with a primary key, they are merged with the rows of their keys.

        rows: as in `Writer.write`: Arrow data, frames, relations, lists of dicts

        Returns the id of the snapshot; None if (commit_user, identifier) was committed before.
        """
        return self._write(rows, None, commit_user, identifier)

    @checked_except("rows")
    def upsert(self, rows: Rows, *, commit_user: str | None = None, identifier: int | None = None) -> int | None:
        """Add rows, or replace those with the same primary key, in one snapshot.

        The table's merge engine decides what becomes of a row and the one that it replaces.

        rows: as in `append`

        Raises BadInput for a table without a primary key: `merge` compares other columns.
        """
        if not self.primary_key:
            raise BadInput(
                f"{self.name} has no primary key that says which rows an upsert replaces; call append(), or "
                "merge(on=[…])"
            )
        return self._write(rows, None, commit_user, identifier)

    @checked_except("rows")
    def bootstrap(self, rows: Rows, *, commit_user: str | None = None) -> int | None:
        """Write the first rows of an empty table with a primary key, in one snapshot: a dump of the source.

        The rows are sorted on disk as far as they exceed memory, and go straight to the highest level. So each row is
        written once, and needs no compaction. The result, and its changelog, is that of `append` and a full compaction.

        rows: as in `append`; a stream is written batch by batch, in bounded memory. No deletes

        Returns the id of the snapshot; None if there are no rows. Raises BadInput if the table has rows,
        CommitConflict if another writer added some meanwhile: then nothing was written.
        """
        with Bootstrap(self.context, commit_user_of(self.context, commit_user)) as first:
            first.write(rows)
            return first.commit()

    @checked_except("rows", "partition")
    def overwrite(
        self,
        rows: Rows,
        *,
        partition: Mapping[str, Any] | None = None,
        commit_user: str | None = None,
        identifier: int | None = None,
    ) -> int | None:
        """Replace rows by others, in one snapshot without a changelog.

        rows: as in `append`
        partition: values of partition columns, {"day": "2026-05-01"}: replaces the partitions with these values. None:
            replaces all rows, or in a partitioned table those of the written partitions (option
            `dynamic-partition-overwrite`)
        """
        return self._write(rows, True if partition is None else partition, commit_user, identifier)

    def _write(
        self, rows: Rows, replaced: bool | Mapping[str, Any] | None, commit_user: str | None, identifier: int | None
    ) -> int | None:
        with self.writer(commit_user=commit_user, overwrite=replaced) as writer:
            writer.write(rows)
            return writer.commit(identifier)

    @checked_except("source")
    def merge(
        self,
        source: Rows,
        on: Sequence[str],
        *,
        when_matched: Literal["update", "delete", "ignore"] = "update",
        when_not_matched: Literal["insert", "ignore"] = "insert",
        commit_user: str | None = None,
        identifier: int | None = None,
    ) -> int | None:
        """Merge rows into the table in one snapshot: SQL's MERGE. Works like `update`, and needs the same of the table.

        source: as the rows of `append`; it is held in memory. Columns that it lacks keep their values in rows that are
            updated, and are null or have their default in new rows
        on: the columns in which a row of the source equals a row of the table. Null equals nothing
        when_matched: what happens to a row of the table with such a row in the source
        when_not_matched: what happens to a row of the source without such a row in the table

        Returns the id of the snapshot; None if nothing changes, or (commit_user, identifier) was committed before.
        Raises BadInput if two rows of the source are equal in these columns. Rows that others add to a table without a
        primary key meanwhile are not compared.
        """
        return OneCommit(self.context, commit_user, identifier).merge(source, on, when_matched, when_not_matched)

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
        return OneCommit(self.context, commit_user, identifier).truncate(partition)

    @checked
    def delete(
        self, where: Predicate | Any, *, commit_user: str | None = None, identifier: int | None = None
    ) -> int | None:
        """Delete the rows that match, in one snapshot. Rows that others add meanwhile stay.

        In an append table they are marked in deletion vectors (option `deletion-vectors.enabled`), and are removed when
        their files are compacted. In a table with a primary key, deletes are written, which most merge engines accept.

        where: a condition, as in `scan`

        Returns the id of the snapshot; None if no row matches, or (commit_user, identifier) was committed before.
        """
        return OneCommit(self.context, commit_user, identifier).delete(where)

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
        return OneCommit(self.context, commit_user, identifier).update(where, values)

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
        return OneCommit(self.context, commit_user, identifier).update_columns(rows)
