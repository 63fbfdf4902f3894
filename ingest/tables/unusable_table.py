"""A table that can't be read at startup, so its position is unknown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tidelake.storage.base.errors import AccessDenied, CorruptFile, TidelakeError, UnsupportedFeature


class TableUnusable(TidelakeError):
    """One table can't be read at startup. With a quarantine, the others continue."""

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(
            f"{table} can't be opened, so its position is unknown: {reason}. Repair the table, or remove it from "
            "`tables` to let the other tables continue. Later it continues from its own position, if the source "
            "still has the records from there on"
        )
        self.table, self.reason = table, reason

    def __reduce__(self) -> tuple[type[TableUnusable], tuple[str, str]]:
        return type(self), (self.table, self.reason)


UNREADABLE_ERRORS: Final = (CorruptFile, AccessDenied, UnsupportedFeature)


@contextmanager
def opened_at_start(table: str, *, is_only: bool) -> Iterator[None]:
    """Raise errors of the block as TableUnusable, with the table's name and the remedy.

    is_only: the pipeline has no other table; then errors are raised unchanged.
    """
    try:
        yield
    except UNREADABLE_ERRORS as error:
        if is_only:
            raise
        raise TableUnusable(table, str(error).rstrip(".")) from error
