"""One run of the demo: write a change log, run a pipeline, compare the tables."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from tidelake.catalog import open_catalog
from tidelake.cli.demo.change_log import ChangeLog, topic_of
from tidelake.cli.demo.changelog_watcher import ChangelogWatcher
from tidelake.cli.demo.comparison import TableComparison, compare_table
from tidelake.cli.demo.engines import AsyncioEngine, DemoEngine
from tidelake.cli.demo.shop import TABLES, Shop
from tidelake.errors import BadInput, TidelakeError
from tidelake.ingest.config.config import load_config
from tidelake.spark_prerequisites import missing_for_spark
from tidelake.storage.base import env
from tidelake.table import Table

_FILES: Final = 12
_INITIAL_FILES: Final = 4
_REFRESH_SECONDS: Final = 0.1
_TIMEOUT_SECONDS: Final = 300.0

_TABLE_OPTIONS: Final = {"changelog-producer": "input"}

_ASYNCIO_SETTINGS: Final = ("source.poll_interval_ms=200",)  # Spark polls for files by itself

_CONFIG: Final = """\
# What the demo ran; `tidelake ingest plan` explains it.
pipeline: shop-demo
warehouse: {warehouse}
source:
  type: change-log-folder
  path: {log}
tables:
  - name: shop.customers
  - name: shop.orders
  - name: shop.stock
checkpoint:
  interval_ms: 1000
"""


@dataclass(frozen=True, slots=True)
class DemoPaths:
    """The directories and files of the demo."""

    directory: Path

    @property
    def log(self) -> Path:
        return self.directory / "change-log"

    @property
    def warehouse(self) -> Path:
        return self.directory / "warehouse"

    @property
    def config(self) -> Path:
        return self.directory / "shop.yaml"

    @property
    def scratch(self) -> Path:
        return self.directory / "scratch"

    def make(self) -> None:
        """Create the directories. Raises BadInput if they already contain something."""
        if self.directory.exists() and (not self.directory.is_dir() or any(self.directory.iterdir())):
            raise BadInput(
                f"{self.directory} is not empty. Pass an empty or new directory, or omit it to use a temporary one"
            )
        for folder in (self.log, self.warehouse, self.scratch):
            folder.mkdir(parents=True)
        self.config.write_text(_CONFIG.format(warehouse=self.warehouse, log=self.log), encoding="utf-8")


@dataclass(slots=True)
class DemoState:
    """The state that a screen shows."""

    layout: DemoPaths
    watcher: ChangelogWatcher
    log: ChangeLog
    records_wanted: int
    engine: str = ""
    doing: str = ""
    running_since: float | None = None
    caught_up_after_seconds: float | None = None

    @property
    def seconds(self) -> float:
        """Seconds since the engine started. The clock stops when every record is in its table."""
        if self.caught_up_after_seconds is not None:
            return self.caught_up_after_seconds
        return 0.0 if self.running_since is None else env.monotonic_s() - self.running_since

    @property
    def records_in_tables(self) -> int:
        """The number of records from which the tables' snapshots were made, by their positions."""
        topics = {f"shop.{table.name}": topic_of(table) for table in TABLES}
        return sum(
            end
            for name, progress in self.watcher.progress.items()
            for partition, end in progress.ends.items()
            if partition.topic == topics[name]
        )


class Screen(Protocol):
    def print_line(self, text: str) -> None:
        """Show one line permanently."""
        ...

    def show(self, scene: DemoState) -> None:
        """Show the current state; called repeatedly."""
        ...


@dataclass(frozen=True, slots=True)
class DemoReport:
    layout: DemoPaths
    engine: str
    records: int
    snapshots: int
    changes: int
    seconds: float
    verdicts: tuple[TableComparison, ...]
    is_changelog_right: bool

    @property
    def is_right(self) -> bool:
        return self.is_changelog_right and all(comparison.is_right for comparison in self.verdicts)


@dataclass(slots=True)
class DemoRun:
    """One run of the demo.

    engine: spark, asyncio, or auto: Spark if it can run here
    records: the minimal number of records to write
    pace_seconds: between two files of the change log, once the pipeline runs
    """

    layout: DemoPaths
    engine: str
    records: int
    seed: int
    pace_seconds: float
    screen: Screen
    _shop: Shop = field(init=False)

    def run(self) -> DemoReport:
        """Run the demo. Raises TidelakeError if the pipeline fails. The report names tables with wrong rows."""
        self.layout.make()
        self._shop = Shop(self.seed)
        tables = self._make_tables()
        scene = DemoState(self.layout, ChangelogWatcher(tables), ChangeLog(self.layout.log), self.records)
        try:
            next_file = self._begin_log(scene.log)
            engine = self._start_engine(scene)
            try:
                self._write_remaining_files(scene, engine, next_file)
            finally:
                engine.stop()
        finally:
            scene.watcher.close()
            shutil.rmtree(self.layout.scratch, ignore_errors=True)
        return self._report(scene, tables)

    def _make_tables(self) -> list[Table]:
        catalog = open_catalog(str(self.layout.warehouse))
        catalog.create_database("shop")
        return [
            catalog.create_table(table.full_name, table.schema, primary_key=table.primary_key, options=_TABLE_OPTIONS)
            for table in TABLES
        ]

    # ------------------------------------------------------------ the change log

    def _begin_log(self, log: ChangeLog) -> Callable[[], bool]:
        """Write the first files.

        Returns a function that writes one more file, and returns whether there was one to write.
        """
        log.write(self._shop.initial_rows(customers=self.records // 30, articles=self.records // 120))
        changes = self._shop.changes()
        a_file = max(1, (self.records - log.records) // _FILES)

        def next_file() -> bool:
            if log.records >= self.records:
                return False
            log.write(itertools.islice(changes, a_file))
            return True

        for _ in range(_INITIAL_FILES):
            next_file()
        self.screen.print_line(f"wrote {log.records:,} change records of a shop to {self.layout.log}")
        return next_file

    def _write_remaining_files(self, scene: DemoState, engine: DemoEngine, next_file: Callable[[], bool]) -> None:
        """Write more files while the pipeline runs, until the last record is in its table."""
        scene.running_since = moved_at = next_file_at = env.monotonic_s()
        scene.doing = "reads the existing log"
        seen, has_more = 0, True
        while has_more or scene.records_in_tables < scene.log.records:
            now = env.monotonic_s()
            if has_more and seen and now >= next_file_at:
                has_more = next_file()
                next_file_at = now + self.pace_seconds
                scene.doing = (
                    "more files appear while it runs" if has_more else ("the log is complete, the tables catch up")
                )
            if scene.records_in_tables > seen:
                moved_at, seen = now, scene.records_in_tables
            elif now - moved_at > _TIMEOUT_SECONDS:
                raise TidelakeError(
                    f"no new rows arrived in the tables for {_TIMEOUT_SECONDS:.0f} seconds, and {engine.name} "
                    "reported no error: the machine may be too busy. Start the demo again; `tidelake demo --engine "
                    "asyncio` needs the fewest resources"
                )
            engine.check()
            scene.watcher.check()
            self.screen.show(scene)
            env.sleep(_REFRESH_SECONDS)
        scene.caught_up_after_seconds = env.monotonic_s() - scene.running_since
        scene.doing = "every record is in its table"
        self.screen.show(scene)

    # ------------------------------------------------------------ the engine

    def _start_engine(self, scene: DemoState) -> DemoEngine:
        engine = self._choose_engine()
        scene.engine = engine.name
        scene.doing = "starting"
        self.screen.show(scene)
        try:
            engine.start()
        except TidelakeError as error:
            if self.engine != "auto" or isinstance(engine, AsyncioEngine):
                raise
            self.screen.print_line(f"{error}\nthe asyncio pipeline runs instead")
            engine = self._asyncio_engine()
            scene.engine = engine.name
            engine.start()
        return engine

    def _asyncio_engine(self) -> AsyncioEngine:
        return AsyncioEngine(load_config(self.layout.config, _ASYNCIO_SETTINGS, environment={}))

    def _choose_engine(self) -> DemoEngine:
        missing = None if self.engine == "asyncio" else missing_for_spark()
        if missing is not None and self.engine == "spark":
            raise TidelakeError(f"Spark can't run on this machine: {missing}")
        if missing is not None:
            self.screen.print_line(f"Spark is not available ({missing}); the asyncio pipeline runs instead")
        if self.engine == "asyncio" or missing is not None:
            return self._asyncio_engine()
        from tidelake.cli.demo.spark import SparkEngine

        return SparkEngine(load_config(self.layout.config, environment={}), self.layout.scratch)

    # ------------------------------------------------------------ comparison

    def _report(self, scene: DemoState, tables: list[Table]) -> DemoReport:
        verdicts = tuple(
            compare_table(table, opened.scan().to_arrow(), self._shop.expected_rows(table))
            for table, opened in zip(TABLES, tables, strict=True)
        )
        progress = scene.watcher.progress
        return DemoReport(
            layout=self.layout,
            engine=scene.engine,
            records=scene.log.records,
            snapshots=sum(of_table.snapshots for of_table in progress.values()),
            changes=sum(sum(of_table.kinds.values()) for of_table in progress.values()),
            seconds=scene.seconds,
            verdicts=verdicts,
            is_changelog_right=all(progress[v.table.full_name].rows == v.rows for v in verdicts),
        )
