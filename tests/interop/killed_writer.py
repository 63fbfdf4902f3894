"""Our writer dies in any call, and the next process repeats its work."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from random import Random
from typing import Final

import pyarrow as pa

import tidelake
from tests.interop.shared_table import SharedTable, changes
from tests.support.faulty_file_io import Fault, FaultyFileIO

_CALLS_MAX: Final = 120  # of a first life; in an old table a commit takes more, and the next lives get them
_LAST_MOMENTS: Final = (Fault.BEFORE, Fault.AFTER, Fault.TORN)


class KilledWriter:
    """Stays open over its commits until it dies.

    user: the same in each of its lives.
    deaths: so far.
    """

    def __init__(self, table: SharedTable, user: str, random: Random) -> None:
        self._table = table
        self._user = user
        self._random = random
        self.deaths = 0
        self._begin()

    def write(self, rows: pa.Table, identifier: int) -> None:
        """Commits them once, in as many lives as it takes. rows: may have _VALUE_KIND."""
        for life in count(2):
            try:
                for batch in rows.to_batches(max_chunksize=7):
                    self._writer.write(batch)
                self._writer.commit(identifier)
                break
            except BaseException:  # whatever a process does when it is no more
                if not self._io.is_dead:
                    raise
                self.deaths += 1
                self._begin(life * _CALLS_MAX)
        self._table.model.write(changes(rows))

    def close(self) -> None:
        self._io.fault = lambda _: None
        self._writer.close()

    def _begin(self, calls_max: int = _CALLS_MAX) -> None:
        context = self._table.ours.context
        self._io = FaultyFileIO(context.io)
        self._io.crash_call(self._random.randrange(1, calls_max), self._random.choice(_LAST_MOMENTS))
        self._writer = tidelake.Table(replace(context, io=self._io)).writer(commit_user=self._user)
