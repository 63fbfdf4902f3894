"""Changes of rows with async. A cancelled call that changes something is completed first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tidelake.aio.maintenance import TableMaintenance
from tidelake.row_level.row_changes import RowChanges as BlockingRowChanges
from tidelake.storage.base.threads import run_uncancellable
from tidelake.storage.read.predicate import Predicate


class RowChanges(TableMaintenance):
    """See `tidelake.Table`."""

    _inner: BlockingRowChanges

    async def truncate(
        self,
        *,
        partition: Mapping[str, Any] | None = None,
        commit_user: str | None = None,
        identifier: int | None = None,
    ) -> int | None:
        """See `tidelake.Table.truncate`. If it is cancelled, it first waits until the outcome is known."""
        return await run_uncancellable(
            self._inner.truncate, partition=partition, commit_user=commit_user, identifier=identifier
        )

    async def delete(
        self, where: Predicate | Any, *, commit_user: str | None = None, identifier: int | None = None
    ) -> int | None:
        """See `tidelake.Table.delete`. If it is cancelled, it first waits until the outcome is known."""
        return await run_uncancellable(self._inner.delete, where, commit_user=commit_user, identifier=identifier)

    async def update(
        self,
        where: Predicate | Any,
        values: Mapping[str, Any],
        *,
        commit_user: str | None = None,
        identifier: int | None = None,
    ) -> int | None:
        """See `tidelake.Table.update`. If it is cancelled, it first waits until the outcome is known."""
        return await run_uncancellable(
            self._inner.update, where, values, commit_user=commit_user, identifier=identifier
        )

    async def update_columns(
        self, rows: pa.Table, *, commit_user: str | None = None, identifier: int | None = None
    ) -> int | None:
        """See `tidelake.Table.update_columns`. If it is cancelled, it first waits until the outcome is known."""
        return await run_uncancellable(self._inner.update_columns, rows, commit_user=commit_user, identifier=identifier)
