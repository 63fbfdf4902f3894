"""Distinguishes errors of one table from errors of the pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tidelake.errors import (
    AccessDenied,
    CorruptFile,
    PositionRefused,
    TableFailed,
    TableUnusable,
    UnsupportedFeature,
    WriterFenced,
)

UNREADABLE_ERRORS: Final = (CorruptFile, AccessDenied, UnsupportedFeature)


@contextmanager
def opened_at_start(table: str, *, is_only: bool) -> Iterator[None]:
    """Raise errors of the block as TableUnusable, with the table's name and the remedy: its position is unknown.

    is_only: the pipeline has no other table; then errors are raised unchanged.
    """
    try:
        yield
    except UNREADABLE_ERRORS as error:
        if is_only:
            raise
        raise TableUnusable(table, str(error).rstrip(".")) from error


class CheckpointFailed(Exception):
    """A checkpoint of all tables failed while one table caught up: the pipeline can't continue, whichever table it was.

    error: the error of the checkpoint.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@contextmanager
def failures_of(table: str) -> Iterator[None]:
    """Raise errors of the block as TableFailed, except errors that concern the whole pipeline.

    Those are: another process owns the pipeline, another one reads the same records, or a checkpoint failed.
    """
    try:
        yield
    except (TableFailed, WriterFenced, PositionRefused, CheckpointFailed):
        raise
    except Exception as error:
        raise TableFailed(table, error) from error
