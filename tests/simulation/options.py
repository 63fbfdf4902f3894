"""What a seed draws before the lake begins: the tables' options, the faults, and who takes part (a swarm)."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.simulation.auditor import Merge, first, newest, not_null, summed
from tests.simulation.store import StoreFaults

_ENGINES: Final[dict[str, tuple[dict[str, str], Merge]]] = {
    "deduplicate": ({}, newest),
    "partial-update": ({"merge-engine": "partial-update"}, not_null),
    "aggregation": (
        {
            "merge-engine": "aggregation",
            "fields.note.aggregate-function": "max",
            "fields.n.aggregate-function": "sum",
        },
        summed,
    ),
    "first-row": ({"merge-engine": "first-row"}, first),
}
_PRODUCERS: Final = ("none", "input", "lookup", "full-compaction")
_LATER_ACTORS: Final = (
    "replay",
    "branch writer",
    "fast forward",
)  # drawn apart from the others, whose draws stay as they were
ACTORS: Final = (
    "pipeline", "take-over", "zombie", "writer", "second writer", "compaction", "expiry", "orphans", "tags", "branches",
    "alterer", "rescale", "follower", "second follower", "reader", *_LATER_ACTORS,
)  # fmt: skip
SOURCE_EVENTS: Final = (
    "connector restarts", "snapshot is read again", "aborted transactions", "log compaction", "retention",
    "lost records", "topic is created again", "keys move", "values are left out", "new partitions",
    "truncates", "nonsense", "new columns",
)  # fmt: skip
"""What happens to the database's table, its connector and its topic."""


@dataclass(frozen=True)
class Swarm:
    """The draw of a seed. snapshot_rows: how many rows the database has before its connector sends changes.
    has_long_notes: some rows are so long that files differ in size, and a compaction leaves out the largest.
    has_large_numbers: rows have numbers that are too large for the table's column, until somebody widens it.
    off: switches that a shrinker turned off: names of actors and faults.
    """

    orders: dict[str, str]
    totals: dict[str, str]
    customers: dict[str, str] | None
    merge: Merge
    engine: str
    faults: StoreFaults
    unavailable: float
    kills: float
    actors: frozenset[str]
    switch_rate: float
    partitions: int
    batch_records: int
    interval_ms: int
    writers: int
    source_events: tuple[str, ...]
    snapshot_rows: int = 0
    bootstrap: str = "{}"
    has_large_numbers: bool = False
    has_long_notes: bool = False
    covered: dict[str, str] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, dict[str, str]]:
        """The options of each table."""
        of_customers = {} if self.customers is None else {"shop.customers": self.customers}
        return {"shop.orders": self.orders, **of_customers, "shop.totals": self.totals}


FAULTS: Final = (
    "error before",
    "error after",
    "late",
    "slow",
    "crash",
    "kill",
    "unavailable",
    "lost put",
    "large numbers",
)


def draw(seed: int, off: frozenset[str] = frozenset()) -> Swarm:
    """Return the draw of a seed. The same numbers are drawn whatever is off."""
    random = Random(f"swarm {seed}")

    def share(name: str, *values: float) -> float:
        drawn = random.choice(values)
        return 0.0 if name in off else drawn

    orders, totals = _common(random), _common(random)
    _draw_changelog(random, orders)
    engine = random.choice(list(_ENGINES))
    options, merge = _ENGINES[engine]
    totals |= options
    producer = random.choice(("none", "lookup", "full-compaction") if engine != "first-row" else ("none", "lookup"))
    totals["changelog-producer"] = producer
    if random.random() < 0.3 and engine != "first-row" and producer != "full-compaction":
        totals["deletion-vectors.enabled"] = "true"
    faults = StoreFaults(
        error_before=share("error before", 0, 0, 0.002, 0.01),
        error_after=share("error after", 0, 0, 0.002, 0.01),
        late_put=share("late", 0, 0, 0.01, 0.05),
        slow=share("slow", 0.0, 0.01, 0.05),
        slow_ms=random.choice((200, 5_000, 60_000)),
        crash=share("crash", 0, 0, 0.0005, 0.002),
        lost_put=0.0 if "lost put" in off else Random(f"lost puts {seed}").choice((0, 0, 0.05, 0.2)),
    )
    first_actors = [name for name in ACTORS if name not in _LATER_ACTORS]
    taking_part = {name for name in first_actors if random.random() < 0.75} | {"pipeline", "writer"}
    partitions = random.choice((1, 2, 3))
    events = _events(Random(f"source {seed}"), partitions)
    snapshot_rows, bootstrap = _bootstrap(Random(f"bootstrap {seed}"), off)
    of_numbers = Random(f"large numbers {seed}")
    has_large_numbers = of_numbers.random() < 0.3 and "large numbers" not in off
    if has_large_numbers:
        events = [event for event in events if event not in _NEED_EACH_ROW]
        taking_part |= {"replay"} if of_numbers.random() < 0.85 else set()
        if partitions == 1 and of_numbers.random() < 0.6:  # a replay must see them
            events = [*(event for event in events if event not in ("truncates", "new partitions")), "truncates"]
    of_branches = Random(f"branches {seed}")
    if of_branches.random() < 0.5 and "branches" in taking_part:
        taking_part |= {"branch writer"} | ({"fast forward"} if of_branches.random() < 0.5 else set())
    return Swarm(
        orders,
        totals,
        _customers(Random(f"customers {seed}"), off),
        merge,
        engine,
        faults,
        unavailable=share("unavailable", 0, 0, 0.01),
        kills=share("kill", 0, 0.3, 1.0),
        actors=frozenset(taking_part - off),
        switch_rate=random.choice((0.05, 0.3, 0.7, 1.0)),
        partitions=partitions,
        batch_records=random.choice((1, 5, 40)),
        interval_ms=random.choice((500, 5_000, 30_000)),
        writers=random.choice((1, 2)),
        source_events=tuple(event for event in events if event not in off),
        snapshot_rows=snapshot_rows,
        bootstrap=bootstrap,
        has_large_numbers=has_large_numbers,
        has_long_notes=Random(f"long notes {seed}").random() < 0.4,
    )


# A record that leaves out values needs the row before it, which may wait as a dead letter. Log compaction keeps only
# the newest record of a key, which may wait, too. A dead letter does not know of which topic it is.
_NEED_EACH_ROW: Final = ("values are left out", "log compaction", "topic is created again")


def _bootstrap(random: Random, off: frozenset[str]) -> tuple[int, str]:
    """How many rows the snapshot has, and the setting by which it is sorted."""
    if random.random() < 0.4 or "bootstrap" in off:
        return 0, "{}"
    rows = random.choice((5, 40, 150))
    bounds = {
        "idle_ms": random.choice((500, 5_000, 60_000)),
        "duration_ms_max": random.choice((5_000, 600_000)),
        "bytes_max": random.choice((2_000, 1 << 20)),
    }
    return rows, f"{{enabled: true, {', '.join(f'{name}: {value}' for name, value in bounds.items())}}}"


def _draw_changelog(random: Random, options: dict[str, str]) -> None:
    if random.random() < 0.3:
        options["deletion-vectors.enabled"] = "true"
    producer = random.choice(_PRODUCERS)
    options["changelog-producer"] = producer
    if producer == "full-compaction" and "deletion-vectors.enabled" in options:
        del options["deletion-vectors.enabled"]


def _customers(random: Random, off: frozenset[str]) -> dict[str, str] | None:
    """The options of a second table of the pipeline, or None."""
    if random.random() < 0.5 or "second table" in off:
        return None
    options = _common(random)
    _draw_changelog(random, options)
    return options


_NEED_WHOLE_ROWS: Final = ("connector restarts", "log compaction", "lost records", "topic is created again")


def _events(random: Random, partitions: int) -> list[str]:
    drawn = [event for event in SOURCE_EVENTS if random.random() < 0.4]
    if random.random() < 0.7:  # these need an operator, and take rows away
        drawn = [event for event in drawn if event not in ("lost records", "topic is created again")]
    if "values are left out" in drawn:  # they are in a row that is not lost, and not a later one
        drawn = [event for event in drawn if event not in _NEED_WHOLE_ROWS]
    if "truncates" in drawn and partitions > 1:  # a truncate has no order with records of other partitions
        drawn.remove("truncates")
    if "truncates" in drawn and "new partitions" in drawn:
        drawn.remove("new partitions")
    return drawn


def _common(random: Random) -> dict[str, str]:
    options = {
        "bucket": random.choice(("1", "2", "-1")),
        "num-sorted-run.compaction-trigger": random.choice(("2", "3", "5")),
        "file.format": random.choice(("parquet", "parquet", "avro", "orc")),
        "snapshot.num-retained.min": random.choice(("1", "3")),
        "snapshot.num-retained.max": random.choice(("3", "10", "1000")),
        "snapshot.time-retained": random.choice(("1 s", "1 min", "1 h")),
        "manifest.merge-min-count": random.choice(("2", "30")),
    }
    if options["bucket"] == "-1":
        options["dynamic-bucket.target-row-num"] = random.choice(("3", "10"))
    if random.random() < 0.25:
        options["write-only"] = "true"
    if random.random() < 0.3:
        options["commit.force-compact"] = "true"
    return options
