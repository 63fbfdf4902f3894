"""Rejects use of an object after a fork.

A forked writer is a copy of a writer that continues. Both would write files with the same names, and publish the same
rows.
"""

from __future__ import annotations

import os

from tidelake.errors import BadInput


class OwnerProcess:
    """The process that created this object.

    what: describes the owned object in messages: `db.t: a writer`.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._pid = os.getpid()

    @property
    def is_current_process(self) -> bool:
        return os.getpid() == self._pid

    def check(self) -> None:
        """Raise BadInput in any other process."""
        if not self.is_current_process:
            raise BadInput(
                f"{self._what} was opened in process {self._pid}, and is used in process {os.getpid()}, which was "
                "forked from it. Nothing was done. Open a new one in each process, after the fork"
            )
