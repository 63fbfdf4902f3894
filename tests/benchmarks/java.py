"""Java Paimon as a contender: its compaction and its writer, in the JVM of the Java oracle with default settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from tests.benchmarks.contest import Sample
from tests.benchmarks.runs import TABLE
from tests.support.java_oracle import JavaOracle

JAVA: Final = "Java Paimon"
# The oracle's own flags make short runs cheap: no optimising compiler, one thread that collects garbage.
JVM: Final = "-XX:TieredStopAtLevel=4 -XX:-UseSerialGC -XX:+UseG1GC -Xmx4g"


class _OneJvm:
    """One JVM for all runs. Use it in a `with` block."""

    def __enter__(self) -> Self:
        self._java = JavaOracle(jvm=JVM)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._java.close()


class JavaCompaction(_OneJvm):
    """Full compactions of a table of `input_rows` rows."""

    def __init__(self, input_rows: int) -> None:
        self._input_rows = input_rows

    def of(self, warehouse: str) -> CompactOnce:
        """A full compaction of `bench.rows`."""
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
    """Commits of the same rows.

    options: of the table that is written.
    full: each commit compacts everything.
    """

    def __init__(self, options: Mapping[str, str], *, full: bool) -> None:
        self._options = options
        self._full = full

    def of(self, warehouse: str) -> ReplayOnce:
        """The commits of `bench.changes` into `bench.rows`."""
        return ReplayOnce(self._java, warehouse, self._options, self._full)


@dataclass(frozen=True, slots=True)
class ReplayOnce:
    java: JavaOracle
    warehouse: str
    options: Mapping[str, str]
    full: bool

    def run(self) -> Sample:
        """The input is read before the clock starts."""
        arguments = (f"bench.{TABLE}", "bench.changes")
        *_, cost = self.java.command("replay", self.warehouse, *arguments, option=dict(self.options), full=self.full)
        return Sample(**cost)
