"""A table that can't be read at startup, so its position is unknown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from storage.errors import AccessDenied, CorruptFile, TidelakeError, UnsupportedFeature


class TableUnusable(TidelakeError):
    """One table cannot be read at startup. With quarantine the others continue."""

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(
            f"{table} can't be opened, so its position is unknown: {reason}. Repair it; or remove it from `tables` to "
            "let the others continue. Once it is back, it continues from its own position, if the source still has the "
            "records from there on"
        )
        self.table, self.reason = table, reason

    def __reduce__(self) -> tuple[type[TableUnusable], tuple[str, str]]:
        return type(self), (self.table, self.reason)


CANT_BE_READ: Final = (CorruptFile, AccessDenied, UnsupportedFeature)


@contextmanager
def opened_at_start(table: str, *, is_only: bool) -> Iterator[None]:
    """Says which table it is that can't be read, and what to do.

    is_only: the pipeline has no other table; then what is raised inside stays as it is.
    """
    try:
        yield
    except CANT_BE_READ as error:
        if is_only:
            raise
        raise TableUnusable(table, str(error).rstrip(".")) from error
