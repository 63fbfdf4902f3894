"""A table that can't be read at startup, so its position is unknown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tidelake.errors import AccessDenied, CorruptFile, TableUnusable, UnsupportedFeature

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
