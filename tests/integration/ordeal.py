"""A process that writes the four tables of `orders` is killed repeatedly while records arrive."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from random import Random
from time import sleep
from typing import Final

import tidelake
from tests.crash.points import Points
from tests.integration.orders import TABLES, Line, Stream, assert_exactly_once
from tests.support.service import Service
from tidelake.checkpoint.offsets import POSITION_PROPERTY, position_from_text

SEED: Final = 20260829
_START_SHARE: Final = 1 / 3  # of the kills


def create_tables(warehouse: str, options: Mapping[str, str]) -> dict[str, tidelake.Table]:
    catalog = tidelake.open_catalog(warehouse, **options)
    catalog.create_database("shop")
    return {kind.name: kind.create(catalog) for kind in TABLES}


@dataclass
class Ordeal:
    """what: named in the counts. send: gives records to the source of all tables. disturb: called when new records have
    been sent. start_s, work_s: within how long a kill comes after the process began, or committed something.
    """

    what: str
    service: Service
    tables: Mapping[str, tidelake.Table]
    stream: Stream
    points: Points
    send: Callable[[list[Line]], None]
    disturb: Callable[[Random], None]
    start_s: float
    work_s: float

    def go_through(self, kills: int) -> None:
        """Then the rest is sent, the process may finish, and each record must count once."""
        random = Random(SEED)
        moments = [False, True][:kills] + [random.random() < _START_SHARE for _ in range(kills - 2)]
        random.shuffle(moments)
        lines = self.stream.lines()
        share = -(-self.stream.count * self.stream.passes // (1 + moments.count(False)))
        with self.service:
            for is_start in moments:
                self.service.start()
                if is_start:
                    sleep(random.uniform(0, self.start_s))
                else:
                    self._until_it_commits(random, lines, share)
                    sleep(random.uniform(0, self.work_s))
                self.service.kill()
                when = f"within {self.start_s:g} s of its start" if is_start else "while it works"
                self.points.tried(f"{self.what}: killed {when}")
            self.send(list(lines))
            self.service.run_to_the_end()
        for kind in TABLES:
            assert_exactly_once(kind, self.tables[kind.name], self.stream)

    def _until_it_commits(self, random: Random, lines: Iterator[Line], share: int) -> None:
        table = self.tables[random.choice(list(self.tables))]
        before = _reached(table)
        self.send(list(islice(lines, share)))
        self.disturb(random)
        self.service.wait_until(lambda: _reached(table) > before)


def _reached(table: tidelake.Table) -> int:
    """How many records of the source the table has."""
    latest = table.context.snapshots.latest()
    if latest is None:
        return 0
    return sum(position_from_text(latest.properties[POSITION_PROPERTY], f"snapshot {latest.id}").ends.values())
