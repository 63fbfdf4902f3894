"""Java Paimon as a contender: its compaction and its writer, in the JVM of the Java oracle, fully optimized."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from benchmarks.contest import Sample
from benchmarks.runs import TABLE
from tests.support.java_oracle import JavaOracle

JAVA: Final = "Java Paimon"
# The oracle's usual flags are for short runs: no optimizing compiler, one thread for garbage collection.
JVM: Final = "-XX:TieredStopAtLevel=4 -XX:-UseSerialGC -XX:+UseG1GC -Xmx4g"


class _OneJvm:
    """A context manager that keeps one JVM for all runs."""

    def __enter__(self) -> Self:
        self._java = JavaOracle(jvm=JVM)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._java.close()


class JavaCompaction(_OneJvm):
    """Runs full compactions of a table with `input_rows` rows."""

    def __init__(self, input_rows: int) -> None:
        self._input_rows = input_rows

    def of(self, warehouse: str) -> CompactOnce:
        """Return a contender that compacts `bench.rows` fully."""
        return CompactOnce(self._java, warehouse, self._input_rows)


@dataclass(frozen=True, slots=True)
class CompactOnce:
    java: JavaOracle
    warehouse: str
    input_rows: int

    def run(self) -> Sample:
        *_, cost = self.java.command("compact", self.warehouse, f"bench.{TABLE}", full=True, timed=True)
        return Sample(self.input_rows, **cost)


class JavaReplay(_OneJvm):
    """Commits the same rows in Java.

    options: options of the written table.
    full: whether each commit does a full compaction.
    """

    def __init__(self, options: Mapping[str, str], *, full: bool) -> None:
        self._options = options
        self._full = full

    def of(self, warehouse: str) -> ReplayOnce:
        """Return a contender that commits `bench.changes` to `bench.rows`."""
        return ReplayOnce(self._java, warehouse, self._options, self._full)


@dataclass(frozen=True, slots=True)
class ReplayOnce:
    java: JavaOracle
    warehouse: str
    options: Mapping[str, str]
    full: bool

    def run(self) -> Sample:
        """Read the input before the clock starts."""
        arguments = (f"bench.{TABLE}", "bench.changes")
        *_, cost = self.java.command("replay", self.warehouse, *arguments, option=dict(self.options), full=self.full)
        return Sample(**cost)
