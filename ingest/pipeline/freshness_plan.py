"""What a target of freshness means before a run: which table rules, how the run begins, what the store allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidelake.ingest.pipeline.builder import tables_at_once
from tidelake.ingest.pipeline.freshness_control import least_target_ms
from tidelake.ingest.settings import Config
from tidelake.storage.base import env
from tidelake.storage.fileio import FileIO, open_retrying_file_io

REQUESTS_OF_CHECKPOINT: Final = 4  # one after another: data file, manifest, manifest list, snapshot
_TRIES: Final = 3


@dataclass(frozen=True, slots=True)
class FreshnessPlan:
    """How a run begins.

    table: the entry whose target rules.
    targets: of each entry that has one.
    interval_ms: the first interval of checkpoints.
    request_ms: duration of a small request to the store; None if only a server knows where the files are.
    least_ms: the smallest target that the store allows, by that duration alone; None: unknown.
    price_an_hour_max: limit of the price.
    """

    target_ms: int
    table: str
    targets: Mapping[str, int]
    interval_ms: int
    request_ms: float | None
    least_ms: int | None
    price_an_hour_max: float | None

    @property
    def problem(self) -> str | None:
        """Why the store does not allow the target; None if it does, or if that is unknown."""
        if self.least_ms is None or self.request_ms is None or self.target_ms >= self.least_ms:
            return None
        return (
            f"`freshness.target_ms` of {self.table} is {self.target_ms:,}, and this store allows {self.least_ms:,} at "
            f"best: a small request takes {self.request_ms:,.0f} ms, and a checkpoint makes "
            f"{REQUESTS_OF_CHECKPOINT} of them one after another"
        )

    def price_problem(self, prices: Sequence[float | None], currency: str) -> str | None:
        """Return why the price limit will bind; None if it won't.

        prices: of the requests of an hour at the first interval, by table; None: unknown
        """
        price, limit = sum(one for one in prices if one is not None), self.price_an_hour_max
        if limit is None or price <= limit:
            return None
        return (
            f"the requests of an hour would cost {price:.4f} {currency}, and `freshness.price_an_hour_max` is "
            f"{limit:g}: checkpoints will be about {self.interval_ms * price / limit / 1000:,.1f} s apart, and the "
            f"target of {self.target_ms / 1000:g} s is missed"
        )

    def to_members(self) -> dict[str, Any]:
        return {
            "target_ms": self.target_ms,
            "table": self.table,
            "targets": dict(self.targets),
            "first_interval_ms": self.interval_ms,
            "request_ms": None if self.request_ms is None else round(self.request_ms, 1),
            "least_ms": self.least_ms,
            "price_an_hour_max": self.price_an_hour_max,
            "problem": self.problem,
        }


def plan_freshness(config: Config, io: FileIO | None = None) -> FreshnessPlan | None:
    """Return the plan; None if no table has a target. It asks the store for an object that does not exist. Blocks.

    io: replaces the store of the configuration
    """
    ruling = config.ruling_target
    if ruling is None:
        return None
    request_ms = _request_ms(config, io)
    least_ms = None
    if request_ms is not None:
        rounds = -(-len(config.tables) // tables_at_once(config))
        least_ms = least_target_ms(rounds * REQUESTS_OF_CHECKPOINT * request_ms)
    targets = {table.name: target for table in config.tables if (target := config.freshness_target_of(table))}
    limit = config.freshness.price_an_hour_max
    return FreshnessPlan(ruling[1], ruling[0], targets, config.first_interval_ms, request_ms, least_ms, limit)


def _request_ms(config: Config, io: FileIO | None) -> float | None:
    """Return the duration of the quickest of some requests: the first one also opens a connection."""
    if config.warehouse_options.get("metastore") == "rest":
        return None
    store = io or open_retrying_file_io(config.warehouse, config.warehouse_options)
    path = f"{config.warehouse.rstrip('/')}/.tidelake-{env.new_uuid().hex}"

    def took_s() -> float:
        began_s = env.monotonic_s()
        store.exists(path)
        return env.monotonic_s() - began_s

    return min(took_s() for _ in range(_TRIES)) * 1000
