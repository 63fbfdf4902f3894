"""The options of `spark.read.format("tidelake")`, sorted out: what to read, of which table, in which warehouse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, TypeVar

from storage.catalog.identifier import Identifier
from storage.errors import BadInput
from storage.format import DEFAULT_BRANCH
from storage.messages.suggestions import did_you_mean
from storage.options.registry import CATALOG_REGISTRY, find_option
from tidelake.catalog import Catalog, open_catalog
from tidelake.scan import Scan

T = TypeVar("T")

_PARTITIONS_MIN: Final = 8
_OWN: Final = ("warehouse", "table", "branch", "snapshot", "tag", "as-of", "push-filters", "min-partitions")


@dataclass(frozen=True)
class ReadOptions:
    """Names are Spark's: without regard to case.

    warehouse, table: as for `tidelake.open_catalog` and `Catalog.table`, system tables and branches too.
    snapshot, tag, as_of: at most one; without, what the table's options say (`scan.snapshot-id`, …), or the latest.
    push_filters: whether Spark's filters are applied here (needs `spark.sql.python.filterPushdown.enabled`).
    min_partitions: into how many tasks a small table is divided, if it has as many splits.
    table_options: dynamic ones. catalog_options: of the catalog and of the store, may hold secrets.
    """

    warehouse: str
    table: str
    snapshot: int | None = None
    tag: str | None = None
    as_of: datetime | int | None = None
    push_filters: bool = False
    min_partitions: int = _PARTITIONS_MIN
    table_options: Mapping[str, str] = field(default_factory=dict)
    catalog_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, given: Mapping[str, str]) -> ReadOptions:
        """Raises BadInput."""
        options = {key.lower(): value for key, value in given.items()}
        if "path" in options:
            raise BadInput(
                f"load({options['path']!r}): a table is named by options, not by a path. Write "
                '.option("warehouse", "/data/lake").option("table", "shop.orders").load()'
            )
        of_table = {key: value for key, value in options.items() if key not in _OWN and _is_of_table(key)}
        of_catalog = {key: value for key, value in options.items() if key not in _OWN and key not in of_table}
        places: list[str] = [key for key in ("snapshot", "tag", "as-of") if key in options]
        places += [key for key in of_table if key.startswith(("scan.", "incremental-"))] if places else []
        if len(places) > 1:
            raise BadInput(f"options {' and '.join(places)} each say what to read; give one of them")
        return cls(
            _required(options, "warehouse", "the directory or URI of the lake, such as s3://bucket/lake"),
            _table_name(options),
            _parsed(options, "snapshot", _whole_number, None),
            options.get("tag"),
            _parsed(options, "as-of", _time, None),
            _parsed(options, "push-filters", _truth, False),
            _parsed(options, "min-partitions", _whole_number, _PARTITIONS_MIN),
            of_table,
            of_catalog,
        )

    def scan(self) -> Scan:
        """Of all columns, at one snapshot from now on. Raises BadInput when there is none such, or no such table."""
        table = self._catalog().table(self.table, self.table_options)
        return table.scan(snapshot=self.snapshot, tag=self.tag, as_of=self.as_of)

    def _catalog(self) -> Catalog:
        for key in self.catalog_options:
            if CATALOG_REGISTRY.find(key) is None and "." not in key and (hint := did_you_mean(key, _OWN)):
                raise BadInput(f"there is no option {key!r} of format tidelake{hint}")
        return open_catalog(self.warehouse, **self.catalog_options)


def _is_of_table(key: str) -> bool:
    return CATALOG_REGISTRY.find(key) is None and find_option(key) is not None


def _required(options: Mapping[str, str], key: str, meaning: str) -> str:
    if not options.get(key, "").strip():
        raise BadInput(f'option {key} of format tidelake is missing: {meaning}. Add .option("{key}", …)')
    return options[key]


def _table_name(options: Mapping[str, str]) -> str:
    name = _required(options, "table", "database and table, such as shop.orders")
    branch = options.get("branch")
    if branch is None:
        return name
    identifier = Identifier.parse(name)
    if identifier.branch not in (DEFAULT_BRANCH, branch):
        raise BadInput(f"option branch = {branch!r}, but table = {name!r} names another one; name it once")
    return str(replace(identifier, branch=branch))


def _parsed(options: Mapping[str, str], key: str, parse: Callable[[str], T], default: T) -> T:
    if key not in options:
        return default
    try:
        return parse(options[key].strip())
    except (ValueError, OverflowError) as error:
        raise BadInput(f"option {key} = {options[key]!r}: {error}") from None


def _whole_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise ValueError("expected a whole number from 1 on")
    return int(text)


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("expected true or false")
    return text.lower() == "true"


def _time(text: str) -> datetime | int:
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("expected epoch milliseconds, or a time such as 2026-01-31T12:00:00+00:00") from None
