"""The definition of a materialized table: its query, how old its rows may be, and how it is refreshed.

The definition is stored in options, as Flink's catalog of Paimon stores it, so that Flink reads the same definition.

Source: Java `flink/FlinkCatalog.java` (fillOptionsForMaterializedTable, buildMaterializedTable).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from tidelake.errors import BadInput, UnsupportedFeature

MATERIALIZED_TABLE: Final = "materialized-table"
_PREFIX: Final = "materialized-table."
_MS: Final = {"second": 1000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
UNITS: Final = tuple(_MS)
_MODES: Final = ("full", "continuous")
_LOGICAL_MODES: Final = (*_MODES, "automatic")
_STATUSES: Final = ("initializing", "activated", "suspended")


@dataclass(frozen=True, slots=True)
class MaterializedDefinition:
    """The definition of a materialized table.

    query: in the SQL of the engine that refreshes the table.
    freshness: how old the rows may be, in units of `unit`.
    unit: `second`, `minute`, `hour` or `day`.
    refresh_mode: `full` replaces all rows at each refresh. `continuous` is an unbounded Flink job.
    status: `suspended` forbids refreshes.
    """

    query: str
    freshness: int
    unit: str = "minute"
    refresh_mode: str = "full"
    status: str = "activated"

    @property
    def freshness_ms(self) -> int:
        return self.freshness * _MS[self.unit]

    def to_options(self) -> dict[str, str]:
        """Return the options for `create_table`."""
        return {
            "type": MATERIALIZED_TABLE,
            "materialized-table.definition-query": self.query,
            "materialized-table.interval-freshness": str(self.freshness),
            "materialized-table.interval-freshness.time-unit": self.unit,
            "materialized-table.logical-refresh-mode": self.refresh_mode,
            "materialized-table.refresh-mode": self.refresh_mode,
            "materialized-table.refresh-status": self.status,
        }

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Read a definition from options.

        Raises BadInput, naming the option, if it is missing or invalid: Flink could not open the table.
        """
        interval = _needed(options, "materialized-table.interval-freshness")
        if not (interval.isascii() and interval.isdigit() and int(interval) > 0):
            raise BadInput(f"option materialized-table.interval-freshness = {interval!r}: expected a number above 0")
        _one_of(options, "materialized-table.logical-refresh-mode", _LOGICAL_MODES)
        return cls(
            _needed(options, "materialized-table.definition-query"),
            int(interval),
            _one_of(options, "materialized-table.interval-freshness.time-unit", UNITS),
            _one_of(options, "materialized-table.refresh-mode", _MODES),
            _one_of(options, "materialized-table.refresh-status", _STATUSES),
        )


def is_materialized(options: Mapping[str, str]) -> bool:
    return options.get("type", "").strip().lower() == MATERIALIZED_TABLE


def check_new_definition(options: Mapping[str, str]) -> None:
    """Check the definition of a new table. Raises BadInput; UnsupportedFeature if Tidelake can't refresh it."""
    if not is_materialized(options):
        return
    if MaterializedDefinition.of(options).refresh_mode != "full":
        raise UnsupportedFeature(
            "option materialized-table.refresh-mode = continuous",
            "a continuous refresh needs a Flink job, which Flink starts when it creates the table",
            "Set it to full, or create the table with Flink",
        )


def _needed(options: Mapping[str, str], key: str) -> str:
    text = options.get(key, "").strip()
    if not text:
        raise BadInput(f"a materialized table needs option {key}; see tidelake.MaterializedDefinition")
    return text


def _one_of(options: Mapping[str, str], key: str, words: tuple[str, ...]) -> str:
    word = _needed(options, key).lower()
    if word not in words:
        raise BadInput(f"option {key} = {word!r}: expected one of {', '.join(words)}")
    return word
