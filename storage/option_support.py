"""What of Paimon's options this release does not act on, and which operation that would make wrong.

An option that would be ignored in silence is refused by the operation it breaks, naming the remedy; the other
operations go on. Options that only change how fast or how often something is done are not refused. `docs/options.md`
is made from here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from storage.bucketing import BucketMode, bucket_mode
from storage.errors import UnsupportedFeature
from storage.logs import get_logger
from storage.options import TableOptions
from storage.options.registry import KNOWN_OPTIONS, KNOWN_PREFIXES
from storage.table import TableContext
from storage.types import Root

_log = get_logger(__name__)


class Operation(StrEnum):
    """READ: the table at a snapshot. CHANGES: what changed between snapshots. WRITE: adding rows. COMPACT: rewriting
    files, in a job of its own.
    """

    READ = "read"
    CHANGES = "changes"
    WRITE = "write"
    COMPACT = "compact"


_READING: Final = frozenset({Operation.READ, Operation.CHANGES})
_ALL: Final = frozenset(Operation)
_WRITE: Final = frozenset({Operation.WRITE, Operation.COMPACT})  # whatever makes files
_ADD_ROWS: Final = frozenset({Operation.WRITE})
_READ: Final = frozenset({Operation.READ})

Condition = Callable[[str, TableOptions], bool]  # of the option, and all of them


@dataclass(frozen=True, slots=True)
class Refusal:
    """One option (or a family that begins with `key`, ending in `.`) and when it stands in the way."""

    key: str
    operations: frozenset[Operation]
    reason: str
    remedy: str
    applies: Condition


def _is_true(key: str, options: TableOptions) -> bool:
    return options.is_on(key)


def _is_set(key: str, options: TableOptions) -> bool:
    return bool(options[key].strip())


def _other_than(*supported: str) -> Condition:
    return lambda key, options: options[key].strip().lower() not in supported


def _unless_write_only(condition: Condition) -> Condition:
    """A write-only writer leaves this to a dedicated compaction job, so ignoring it is right."""
    return lambda key, options: condition(key, options) and not options.write_only


_USE_JAVA: Final = "Use Java Paimon for it"
_SET_WRITE_ONLY: Final = "Set write-only = true and let a dedicated compaction job do it, or unset the option"
_PASS_TO_SCAN: Final = "Unset it, and pass snapshot=, tag= or as_of= to scan()"

REFUSALS: Final[tuple[Refusal, ...]] = (
    Refusal("type", _ALL, "only ordinary tables are supported", _USE_JAVA, _other_than("table")),
    Refusal("deletion-vectors.enabled", _WRITE, "rows marked as deleted would reappear", _USE_JAVA, _is_true),
    Refusal(
        "changelog-producer",
        _ADD_ROWS,
        "compaction would make the changelog, and here it makes none: it would silently stay empty",
        "Set changelog-producer to none or input, or write-only = true and let Java Paimon's compaction job make it",
        _unless_write_only(_other_than("none", "input")),
    ),
    Refusal(
        "changelog-producer",
        frozenset({Operation.COMPACT}),
        "compaction makes this changelog, and compacting here would leave it empty",
        "Compact with Java Paimon, or set changelog-producer to none or input",
        _other_than("none", "input"),
    ),
    Refusal("sequence.snapshot-ordering", _ALL, "rows would win in the wrong order", "Use sequence.field", _is_true),
    Refusal("pk-clustering-override", _ALL, "files are not sorted by the primary key", _USE_JAVA, _is_true),
    Refusal("data-evolution.enabled", _ALL, "columns of a row lie in several files", _USE_JAVA, _is_true),
    Refusal("row-tracking.enabled", _WRITE, "row ids would be missing", _USE_JAVA, _is_true),
    Refusal("chain-table.enabled", _ALL, "rows lie in several branches", _USE_JAVA, _is_true),
    Refusal("scan.fallback-branch", _READING, "rows may lie in another branch", "Read the branch itself", _is_set),
    Refusal("scan.primary-branch", _READING, "rows may lie in another branch", "Read the branch itself", _is_set),
    Refusal("query-auth.enabled", _READING, "rows and columns may be hidden from you", _USE_JAVA, _is_true),
    *(
        Refusal(key, _READ, "a stored position would change what is read", _PASS_TO_SCAN, _is_set)
        for key in (
            "scan.snapshot-id",
            "scan.tag-name",
            "scan.version",
            "scan.timestamp",
            "scan.timestamp-millis",
            "scan.watermark",
            "scan.file-creation-time-millis",
            "scan.creation-time-millis",
            "scan.bucket",
            "incremental-between",
            "incremental-between-timestamp",
            "incremental-to-auto-tag",
        )
    ),
    Refusal(
        "streaming-read-overwrite",
        frozenset({Operation.CHANGES}),
        "overwrites are not turned into changes",
        "Unset it",
        _is_true,
    ),
    Refusal(
        "streaming-read-append-overwrite",
        frozenset({Operation.CHANGES}),
        "overwrites are not turned into changes",
        "Unset it",
        _is_true,
    ),
    Refusal(
        "file.format",
        _WRITE,
        "files can be written as parquet, orc and avro",
        "Choose one of them",
        _other_than("parquet", "orc", "avro"),
    ),
    Refusal(
        "changelog-file.format",
        _WRITE,
        "files can be written as parquet, orc and avro",
        "Choose one of them",
        _other_than("parquet", "orc", "avro"),
    ),
    Refusal("file-index.", _WRITE, "new files would lack the index", "Unset it; readers work without", _is_set),
    *(
        Refusal(f"pk-{kind}.index.columns", _WRITE, "new files would lack the index", "Unset it", _is_set)
        for kind in ("vector", "btree", "bitmap", "multivalue", "full-text")
    ),
    Refusal("data-file.external-paths", _WRITE, "files would lie in the table's own directory", "Unset it", _is_set),
    Refusal(
        "write.sequence-number-init-mode",
        _ADD_ROWS,
        "sequence numbers start from the files of a bucket",
        "Unset it",
        _other_than("scan"),
    ),
    Refusal("commit.strict-mode.last-safe-snapshot", _WRITE, "the check is not made", "Unset it", _is_set),
    Refusal("commit.callbacks", _WRITE, "Java classes can't be called", "Unset it", _is_set),
    Refusal("tag.callbacks", _ADD_ROWS, "Java classes can't be called", "Unset it", _is_set),
    Refusal(
        "tag.automatic-creation",
        _ADD_ROWS,
        "no tags would be made",
        _SET_WRITE_ONLY,
        _unless_write_only(_other_than("none")),
    ),
    Refusal(
        "partition.expiration-time",
        _ADD_ROWS,
        "old partitions would stay",
        _SET_WRITE_ONLY,
        _unless_write_only(_is_set),
    ),
    Refusal("variant.shreddingSchema", _WRITE, "variants are written unshredded", "Unset it", _is_set),
    Refusal("variant.inferShreddingSchema", _WRITE, "variants are written unshredded", "Unset it", _is_true),
)

_warned: set[str] = set()
_warned_lock = threading.Lock()


def check_supported(context: TableContext, operation: Operation) -> None:
    """Raises UnsupportedFeature for the first thing about the table that would make the operation wrong.

    Options that Paimon doesn't know either are logged, once each in a process.
    """
    options = context.options
    for refusal in REFUSALS:
        if operation in refusal.operations:
            for key in _matching(refusal.key, options):
                if refusal.applies(key, options):
                    raise UnsupportedFeature(
                        f"{context.name}: option {key} = {options[key]}",
                        f"cannot {operation}: {refusal.reason}",
                        refusal.remedy,
                    )
    _check_buckets(context, operation)
    _check_types(context)
    _warn_unknown(options)


def _matching(key: str, options: TableOptions) -> list[str]:
    if key.endswith("."):
        return [option for option in options if option.startswith(key) and option.endswith(".columns")]
    return [key] if key in options else []


def _check_buckets(context: TableContext, operation: Operation) -> None:
    mode = bucket_mode(context.schema, context.options)
    if mode is BucketMode.POSTPONE:
        raise UnsupportedFeature(
            f"{context.name}: option bucket = -2 (postpone)",
            f"cannot {operation}: rows wait outside of the buckets until a job of another engine moves them",
            _USE_JAVA,
        )
    if operation is Operation.WRITE and mode in (BucketMode.DYNAMIC, BucketMode.CROSS_PARTITION):
        raise UnsupportedFeature(
            f"{context.name}: option bucket = -1 (dynamic) on a primary-key table",
            "cannot write: which bucket a key lives in is kept in an index this release doesn't maintain",
            "Create the table with a fixed number of buckets",
        )


def _check_types(context: TableContext) -> None:
    for field in context.schema.fields:
        if field.type.root is Root.BLOB:
            raise UnsupportedFeature(
                f"{context.name}: column {field.name} BLOB", "its values lie in files of their own", _USE_JAVA
            )


def _warn_unknown(options: TableOptions) -> None:
    for key in options:
        if key in KNOWN_OPTIONS or key.startswith(KNOWN_PREFIXES):
            continue
        with _warned_lock:
            if key in _warned:
                continue
            _warned.add(key)
        _log.warning("option unknown", option=key, effect="none: Paimon has no option of this name either")
