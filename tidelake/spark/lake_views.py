"""The tables of a lake as temporary views of a session, so that `spark.sql` knows them by name.

A Python data source can't be a catalog of Spark, nor a table of Spark's own catalog: for such a table Spark passes no
options to the reader. A temporary view has no database, so its name holds both: `shop_orders`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from tidelake.catalog import Catalog, open_catalog
from tidelake.errors import BadInput, TidelakeError
from tidelake.ingest.spark.release import check_session
from tidelake.scan import Scan
from tidelake.spark.table_read import read
from tidelake.storage.base.logs import get_logger
from tidelake.storage.kinds.system_tables.by_name import SYSTEM_TABLES
from tidelake.storage.model.messages import did_you_mean

_State = tuple[Any, ...]

_CALL: Final = "tidelake.spark.catalog"
_made: Final[WeakKeyDictionary[Any, dict[tuple[str, str], dict[str, _View]]]] = WeakKeyDictionary()
"""The views of each session, by lake and prefix: a call that is repeated replaces those of the call before."""

_log = get_logger(__name__)


def catalog(
    spark: SparkSession,
    warehouse: str,
    *,
    tables: str | Sequence[str] = "*",
    system_tables: Sequence[str] = (),
    prefix: str = "",
    names: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
) -> LakeViews:
    """Make each table of a lake a temporary view of the session: `shop.orders` is `shop_orders`.

    A view shows the snapshot that was the newest at this call, or at the last `LakeViews.refresh`. Views of system
    tables are at least as new.

    tables: patterns (`shop.*`) for `database.table`
    system_tables: names of system tables (`snapshots`); those of each table are views, too: `shop_orders$snapshots`
    prefix: of each view's name
    names: of views, by `database.table`, in place of `database_table`
    options: of the catalog and of the store

    Raises BadInput for two tables with the same name of a view, and for a name that the session has for something else.
    """
    check_session(spark)
    patterns = (tables,) if isinstance(tables, str) else tuple(tables)
    for name in system_tables:
        if name not in SYSTEM_TABLES:
            raise BadInput(
                f"{_CALL}: there is no system table {name!r}{did_you_mean(name, SYSTEM_TABLES)}. "
                f"Name some of {', '.join(SYSTEM_TABLES)}"
            )
    of_lake = _made.setdefault(spark, {}).setdefault((warehouse.rstrip("/"), prefix), {})
    views = LakeViews(
        spark, warehouse, patterns, tuple(system_tables), prefix, dict(names or {}), dict(options or {}), of_lake
    )
    views.check_arguments()
    views.refresh()
    return views


@dataclass(frozen=True)
class _View:
    """A view of the session.

    state: what it shows; None if it isn't known, so that the view is made again
    """

    table: str
    state: _State | None


@dataclass(frozen=True)
class LakeViews:
    """The temporary views of a lake's tables in a session.

    failures: tables that could not be read at the last refresh, with their errors. They have no view.
    """

    spark: SparkSession
    warehouse: str
    patterns: Sequence[str]
    system_tables: Sequence[str]
    prefix: str
    names: Mapping[str, str]
    options: Mapping[str, str] = field(repr=False)
    _views: dict[str, _View] = field(repr=False)
    failures: dict[str, TidelakeError] = field(default_factory=dict)

    @property
    def views(self) -> dict[str, str]:
        """The tables by the names of their views, sorted."""
        return {name: view.table for name, view in sorted(self._views.items())}

    def refresh(self) -> list[str]:
        """Let the views show the newest snapshots, and add and drop views as the lake's tables are.

        A DataFrame that was made before keeps its snapshots. A table that can't be read loses its view; the log and
        `failures` name the reason.

        Returns the names of the views that were made again or dropped.
        """
        lake = open_catalog(self.warehouse, **self.options)
        wanted = self._wanted(lake)
        for name in wanted.keys() - self._views.keys():
            self._check_is_free(name, wanted[name])
        changed = [name for name in self._views if name not in wanted]
        self.failures.clear()
        for name in changed:
            self._drop(name)
        for name, table in wanted.items():
            try:
                if self._make(lake, name, table):
                    changed.append(name)
            except TidelakeError as error:
                self.failures[table] = error
                if name in self._views:
                    self._drop(name)
                    changed.append(name)
                _log.warning("table without a view", table=table, view=name, reason=str(error))
        return sorted(changed)

    def drop(self) -> None:
        """Drop the views."""
        for name in list(self._views):
            self._drop(name)

    def check_arguments(self) -> None:
        """Raise BadInput for patterns and names that no table of the lake has."""
        found = list(_tables(open_catalog(self.warehouse, **self.options)))
        for pattern in self.patterns:
            if pattern != "*" and not any(fnmatchcase(table, pattern) for table in found):
                raise BadInput(
                    f"{_CALL}: no table of {self.warehouse} matches {pattern!r}{did_you_mean(pattern, found)}. "
                    "A pattern is database.table, such as shop.*"
                )
        for table in self.names:
            if table not in found:
                raise BadInput(
                    f"{_CALL}: names = {table!r} is no table of {self.warehouse}{did_you_mean(table, found)}. "
                    "Name a table as database.table"
                )

    def _wanted(self, lake: Catalog) -> dict[str, str]:
        """Return the tables by the names of their views."""
        found: dict[str, str] = {}
        by_lower_case: dict[str, str] = {}  # as Spark compares names
        for table in _tables(lake):
            if not any(fnmatchcase(table, pattern) for pattern in self.patterns):
                continue
            name = self.prefix + self.names.get(table, table.replace(".", "_", 1))
            if other := by_lower_case.get(name.lower()):
                raise BadInput(
                    f"{_CALL}: {other} and {table} would both be the view {name}. Give one of them another name: "
                    f"names={{{table!r}: …}}"
                )
            by_lower_case[name.lower()] = table
            found[name] = table
            found |= {f"{name}${system}": f"{table}${system}" for system in self.system_tables}
        return found

    def _check_is_free(self, name: str, table: str) -> None:
        """Raise BadInput if the session has something else under the name, which the view would hide."""
        if self.spark.catalog.tableExists(_quoted(name)):
            raise BadInput(
                f"{_CALL}: the session already has a table or view {name}, which the view of {table} would hide. Set "
                f"prefix=, give it another name (names={{{table!r}: …}}), or drop the other one"
            )

    def _make(self, lake: Catalog, name: str, table: str) -> bool:
        """Make a view again unless it shows the newest state. Returns whether it was made."""
        state, earlier = _newest(lake, table), self._views.get(name)
        is_current = state is not None and earlier is not None and (earlier.table, earlier.state) == (table, state)
        if is_current and self.spark.catalog.tableExists(_quoted(name)):
            return False
        read(self.spark, table, self.warehouse, options=self.options).createOrReplaceTempView(_quoted(name))
        self._views[name] = _View(table, state)
        return True

    def _drop(self, name: str) -> None:
        self.spark.catalog.dropTempView(name)
        del self._views[name]


def _tables(lake: Catalog) -> Iterator[str]:
    for database in lake.list_databases():
        for table in lake.list_tables(database):
            yield f"{database}.{table}"


def _newest(lake: Catalog, table: str) -> _State | None:
    """Return what the rows of a table depend on; None if it is more than a snapshot with its schema."""
    scan = lake.table(table).scan()
    if type(scan) is not Scan or not scan.is_of_snapshot_alone:
        return None
    return scan.context.location, scan.context.schema, scan.snapshot


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
