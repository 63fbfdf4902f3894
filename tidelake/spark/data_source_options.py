"""The options of `format("tidelake")`: what to read, of which table, in which warehouse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from tidelake.catalog import Catalog, open_catalog
from tidelake.errors import BadInput
from tidelake.scan import Scan
from tidelake.spark.native.pinned_read import PINNED_READ, PinnedRead
from tidelake.spark.option_values import parse_boolean, time, value_of, whole_number
from tidelake.storage.catalog.identifier import Identifier
from tidelake.storage.model.format import DEFAULT_BRANCH
from tidelake.storage.model.messages import did_you_mean
from tidelake.storage.model.options.registry import CATALOG_REGISTRY, find_option
from tidelake.storage.model.snapshots.branches import FALLBACK_BRANCH, PRIMARY_BRANCH
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.stream.micro_batches import BatchLimits

FORMAT: Final = "tidelake"
MAX_FILES: Final = "read.stream.maxfilespertrigger"
MAX_BYTES: Final = "read.stream.maxbytespertrigger"
MAX_ROWS: Final = "read.stream.maxrowspertrigger"
MIN_ROWS: Final = "read.stream.minrowspertrigger"
MAX_DELAY_MS: Final = "read.stream.maxtriggerdelayms"
SKIP_OVERWRITES: Final = "skip-overwrites"

STREAM_OPTIONS: Final = (MAX_FILES, MAX_BYTES, MAX_ROWS, MIN_ROWS, MAX_DELAY_MS, SKIP_OVERWRITES)

_DATABASE_SUFFIX: Final = ".db"  # of the directory of a database
_OTHER_BRANCHES: Final = (FALLBACK_BRANCH, PRIMARY_BRANCH)  # they choose no state of the table
_STARTS: Final = "A stream begins where scan.mode and scan.snapshot-id or scan.timestamp-millis say"
_OF_OTHER_FORMATS: Final[Mapping[str, str]] = {  # Delta, Iceberg and Hudi; in lower case
    "versionasof": "Did you mean 'snapshot'?",
    "timestampasof": "Did you mean 'as-of'?",
    "snapshot-id": "Did you mean 'snapshot'?",
    "as-of-timestamp": "Did you mean 'as-of'?",
    "as.of.instant": "Did you mean 'as-of'?",
    "readchangefeed": "Did you mean 'read.changelog'?",
    "readchangedata": "Did you mean 'read.changelog'?",
    "startingversion": f"Did you mean 'scan.snapshot-id'? {_STARTS}; for a batch read see incremental-between",
    "startingtimestamp": f"Did you mean 'scan.timestamp-millis'? {_STARTS}; for a batch read see incremental-between",
    "endingversion": "Did you mean 'incremental-between'? It names both ends of a batch read of changes",
    "endingtimestamp": "Did you mean 'incremental-between-timestamp'? It names both ends of a batch read of changes",
    "start-snapshot-id": "Did you mean 'incremental-between'? It names both ends of a batch read of changes",
    "end-snapshot-id": "Did you mean 'incremental-between'? It names both ends of a batch read of changes",
    "stream-from-timestamp": f"Did you mean 'scan.timestamp-millis'? {_STARTS}",
    "streaming-skip-overwrite-snapshots": "Did you mean 'skip-overwrites'?",
    "ignorechanges": "Did you mean 'skip-overwrites'?",
    "ignoredeletes": "Did you mean 'skip-overwrites'?",
    "skipchangecommits": "Did you mean 'skip-overwrites'?",
    "maxfilespertrigger": "Did you mean 'read.stream.maxFilesPerTrigger'?",
    "maxbytespertrigger": "Did you mean 'read.stream.maxBytesPerTrigger'?",
    "mergeschema": "A write changes no columns: add them with Catalog.alter_table, then write",
    "merge-schema": "A write changes no columns: add them with Catalog.alter_table, then write",
    "overwriteschema": "A write changes no columns: change them with Catalog.alter_table, then write",
    "replacewhere": "Did you mean tidelake.spark.write(…, overwrite={column: value})? It replaces partitions",
    "overwrite-mode": "Did you mean 'partitionOverwriteMode'?",
    "owner": "Spark adds it to CREATE TABLE … USING tidelake, and passes no options of such a table to its reader. "
    "Did you mean tidelake.spark.catalog? It makes the tables of a lake views",
    "txnappid": "Did you mean tidelake.spark.sink(commit_user=…)? It writes each batch once",
    "txnversion": "Did you mean tidelake.spark.sink? It writes each batch once",
}
_PARTITIONS_MIN: Final = 8
_CHANGELOG: Final = "read.changelog"
OVERWRITE_MODE: Final = "partitionoverwritemode"
_ROW_KINDS: Final = "audit_log"
_OWN: Final = (
    *("warehouse", "table", "branch", "snapshot", "tag", "as-of", "push-filters", "min-partitions", _CHANGELOG),
    OVERWRITE_MODE,
    PINNED_READ,
    *STREAM_OPTIONS,
)


@dataclass(frozen=True)
class StreamOptions:
    """The options of `spark.readStream.format("tidelake")` only: how much a batch reads, and which rows.

    limits: of a batch.
    min_rows: a batch waits for this number of rows. Set with max_delay_ms, or neither.
    max_delay_ms: how long it waits at most after the batch before.
    skips_overwrites: see `MicroBatches`.
    """

    limits: BatchLimits = field(default_factory=BatchLimits)
    min_rows: int | None = None
    max_delay_ms: int | None = None
    skips_overwrites: bool = False

    @classmethod
    def of(cls, options: Mapping[str, str]) -> StreamOptions:
        """Parse options.

        options: names in lower case

        Raises BadInput.
        """
        numbers = {
            name: value_of(options, name, whole_number, None) for name in STREAM_OPTIONS if name != SKIP_OVERWRITES
        }
        min_rows, max_delay_ms = numbers[MIN_ROWS], numbers[MAX_DELAY_MS]
        if (min_rows is None) != (max_delay_ms is None):
            raise BadInput(
                "options read.stream.minRowsPerTrigger and read.stream.maxTriggerDelayMs need each other: a batch "
                "waits until there are so many rows, but at most for this time. Set both"
            )
        limits = BatchLimits(numbers[MAX_ROWS], numbers[MAX_BYTES], numbers[MAX_FILES])
        return cls(limits, min_rows, max_delay_ms, value_of(options, SKIP_OVERWRITES, parse_boolean, False))


@dataclass(frozen=True)
class ReadOptions:
    """The parsed options. The case of names is ignored, as in Spark.

    warehouse: as for `tidelake.open_catalog`
    table: as for `Catalog.table`; system tables and branches are allowed
    snapshot: id of the snapshot. At most one of snapshot, tag and as_of; without them, the table's options decide
        (`scan.snapshot-id`, …), or the latest is read
    tag: name of a tag
    as_of: the last snapshot at this time
    push_filters: whether Spark's filters are applied here (needs `spark.sql.python.filterPushdown.enabled`). Spark then
        returns right rows only if each DataFrame is used once
    min_partitions: the number of tasks of a small table, if it has as many splits
    changelog: whether rows have their kind in column `rowkind`; None if the option is not set
    replaces_partitions: for writes that overwrite: see `write_context`
    stream: options of streaming reads
    pinned: the rest of a read that began already (`tidelake.spark.read`)
    table_options: dynamic options of the table
    catalog_options: of the catalog and of the store, may hold secrets
    """

    warehouse: str
    table: str
    snapshot: int | None = None
    tag: str | None = None
    as_of: datetime | int | None = None
    push_filters: bool = False
    min_partitions: int = _PARTITIONS_MIN
    changelog: bool | None = None
    replaces_partitions: bool = False
    stream: StreamOptions = field(default_factory=StreamOptions)
    pinned: PinnedRead | None = None
    table_options: Mapping[str, str] = field(default_factory=dict)
    catalog_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, given: Mapping[str, str]) -> ReadOptions:
        """Parse options. Raises BadInput."""
        options = {key.lower(): value for key, value in given.items()}
        for key in options:
            if key in _OF_OTHER_FORMATS:
                raise BadInput(f"format tidelake has no option {key!r}. {_OF_OTHER_FORMATS[key]}")
        if "path" in options:
            options = {**_named_by_path(options), **{key: text for key, text in options.items() if key != "path"}}
        of_table = {key: value for key, value in options.items() if key not in _OWN and _is_of_table(key)}
        of_catalog = {key: value for key, value in options.items() if key not in _OWN and key not in of_table}
        places: list[str] = [key for key in ("snapshot", "tag", "as-of") if key in options]
        chosen = [key for key in of_table if key.startswith(("scan.", "incremental-")) and key not in _OTHER_BRANCHES]
        places += chosen if places else []
        if len(places) > 1:
            raise BadInput(f"options {' and '.join(places)} each choose what to read; set one of them")
        return cls(
            _required(options, "warehouse", "the directory or URI of the lake, such as s3://bucket/lake"),
            _table_name(options),
            value_of(options, "snapshot", whole_number, None),
            options.get("tag"),
            value_of(options, "as-of", time, None),
            value_of(options, "push-filters", _pushes_filters, False),
            value_of(options, "min-partitions", whole_number, _PARTITIONS_MIN),
            value_of(options, _CHANGELOG, parse_boolean, None),
            value_of(options, OVERWRITE_MODE, _replaces_partitions, False),
            StreamOptions.of(options),
            value_of(options, PINNED_READ, PinnedRead.of_text, None),
            of_table,
            of_catalog,
        )

    def scan(self) -> Scan:
        """Return a scan of all columns, at one snapshot from now on.

        Raises BadInput if the snapshot or the table doesn't exist.
        """
        name = Identifier.parse(self.table)
        if self.changelog and name.system_table is None:
            name = replace(name, system_table=_ROW_KINDS)
        table = self._catalog().table(str(name), self.table_options)
        if self.pinned is not None:
            return self.pinned.scan(table.context)
        return table.scan(snapshot=self.snapshot, tag=self.tag, as_of=self.as_of)

    def check_batch_read(self) -> None:
        """Raise BadInput for options of streaming reads."""
        if self.stream != StreamOptions():
            raise BadInput("options read.stream.… and skip-overwrites are only for streaming reads. Leave them out")

    def write_context(self) -> TableContext:
        """Return the table for a batch write.

        Rows that overwrite replace all rows, or with `partitionOverwriteMode=dynamic` those of the written partitions,
        as in Spark. Raises BadInput for options of reads, and for system tables.
        """
        given: dict[str, object] = {"snapshot": self.snapshot, "tag": self.tag, "as-of": self.as_of}
        given[_CHANGELOG] = self.changelog
        given[PINNED_READ] = self.pinned
        given["push-filters"] = self.push_filters or None
        given["min-partitions"] = None if self.min_partitions == _PARTITIONS_MIN else self.min_partitions
        given["read.stream.…"] = None if self.stream == StreamOptions() else self.stream
        if named := [key for key, value in given.items() if value is not None]:
            raise BadInput(f"option {named[0]} is only for reads. Leave it out of the write")
        if Identifier.parse(self.table).system_table is not None:
            raise BadInput(f"{self.table} can't be written. Use the name of the table itself")
        options = {"dynamic-partition-overwrite": str(self.replaces_partitions).lower(), **self.table_options}
        return self._catalog().table(self.table, options).context

    def stream_context(self) -> TableContext:
        """Return the table for a streaming read. Raises BadInput for options of a batch read, and for system tables."""
        given: dict[str, object] = {"snapshot": self.snapshot, "tag": self.tag, "as-of": self.as_of}
        given[PINNED_READ] = self.pinned
        if place := [key for key, value in given.items() if value is not None]:
            raise BadInput(
                f"option {place[0]} is only for batch reads. To choose where a stream begins, set scan.mode, "
                "scan.snapshot-id, scan.timestamp-millis, …; without them it reads all rows, then the changes"
            )
        if self.push_filters:
            raise BadInput(
                "option push-filters is only for batch reads: Spark pushes no filter into a stream. Leave it out"
            )
        if Identifier.parse(self.table).system_table is not None:
            raise BadInput(
                f"{self.table} can't be read as a stream. Use the name of the table itself; read.changelog=true adds "
                "the column rowkind"
            )
        return self._catalog().table(self.table, self.table_options).context

    def _catalog(self) -> Catalog:
        for key in self.catalog_options:
            if CATALOG_REGISTRY.find(key) is None and "." not in key and (hint := did_you_mean(key, _OWN)):
                raise BadInput(f"format tidelake has no option {key!r}{hint}")
        return open_catalog(self.warehouse, **self.catalog_options)


def _named_by_path(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that `load(…)` stands for: a table's name, or the path of its directory.

    Raises BadInput for another path, and for a table that is named twice.
    """
    text = options["path"].strip()
    where = f"load({text!r})"
    if "table" in options:
        raise BadInput(f"{where}: option table = {options['table']!r} names the table, too; name it once")
    parts = text.rstrip("/").split("/")
    if len(parts) == 1:
        return {"table": text}
    database, table = parts[-2:]
    if not database.endswith(_DATABASE_SUFFIX) or len(parts) < 3:
        raise BadInput(
            f"{where} is neither a name such as shop.orders nor the directory of a table such as "
            f"/data/lake/shop{_DATABASE_SUFFIX}/orders. Write the name, and the lake as option warehouse"
        )
    warehouse = "/".join(parts[:-2]) or "/"
    if "warehouse" in options and options["warehouse"].rstrip("/") != warehouse.rstrip("/"):
        raise BadInput(f"{where}: option warehouse = {options['warehouse']!r} names another lake; leave it out")
    return {"warehouse": warehouse, "table": f"{database.removesuffix(_DATABASE_SUFFIX)}.{table}"}


def _replaces_partitions(text: str) -> bool:
    if text.lower() not in ("static", "dynamic"):
        raise ValueError("expected static or dynamic")
    return text.lower() == "dynamic"


def _pushes_filters(text: str) -> bool:
    if text.lower() == "true":
        raise ValueError(
            "Spark keeps the filters of one query for others of the same DataFrame, which then miss rows. Set it to "
            "once if every DataFrame is used in one query, and once in it; call load() again for each query"
        )
    if text.lower() not in ("false", "once"):
        raise ValueError("expected false or once")
    return text.lower() == "once"


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
        raise BadInput(f"option branch = {branch!r}, but table = {name!r} names another branch; name the branch once")
    return str(replace(identifier, branch=branch))
