"""Options for the start of a read, and for reads of changes.

Source: Java `CoreOptions.java` (startupMode), `schema/SchemaValidation.java` (validateStartupMode).
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final

from tidelake.errors import BadInput
from tidelake.storage.model.options.base_options import BaseOptions
from tidelake.storage.model.options.option_value import EnumValue, OptionValue
from tidelake.storage.model.options.values import parse_long


class StartupMode(StrEnum):
    LATEST_FULL = "latest-full"
    LATEST = "latest"
    LATEST_DELTA = "latest-delta"
    COMPACTED_FULL = "compacted-full"
    FROM_TIMESTAMP = "from-timestamp"
    FROM_CREATION_TIMESTAMP = "from-creation-timestamp"
    FROM_FILE_CREATION_TIME = "from-file-creation-time"
    FROM_SNAPSHOT = "from-snapshot"
    FROM_SNAPSHOT_FULL = "from-snapshot-full"
    INCREMENTAL = "incremental"


class IncrementalScanMode(StrEnum):
    AUTO = "auto"
    DELTA = "delta"
    CHANGELOG = "changelog"
    DIFF = "diff"


class ConsumerMode(StrEnum):
    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


# Options that name a start, and the mode that each means if `scan.mode` is not set. The first one that is set decides.
_PLACES: Final = {
    "scan.timestamp-millis": StartupMode.FROM_TIMESTAMP,
    "scan.timestamp": StartupMode.FROM_TIMESTAMP,
    "scan.snapshot-id": StartupMode.FROM_SNAPSHOT,
    "scan.tag-name": StartupMode.FROM_SNAPSHOT,
    "scan.watermark": StartupMode.FROM_SNAPSHOT,
    "scan.version": StartupMode.FROM_SNAPSHOT,
    "scan.file-creation-time-millis": StartupMode.FROM_FILE_CREATION_TIME,
    "scan.creation-time-millis": StartupMode.FROM_CREATION_TIMESTAMP,
    "incremental-between": StartupMode.INCREMENTAL,
    "incremental-between-timestamp": StartupMode.INCREMENTAL,
    "incremental-to-auto-tag": StartupMode.INCREMENTAL,
}


def _local_time_ms(text: str) -> int:
    try:
        return int(datetime.fromisoformat(text.strip()).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise BadInput("expected a time such as 2026-01-31 12:00:00") from None


def _parse_time_range(text: str) -> tuple[int, int]:
    try:
        first, last = (int(part) if part.strip().isdecimal() else _local_time_ms(part) for part in text.split(","))
    except ValueError:
        raise BadInput("expected two times, such as 2026-01-31 12:00:00,2026-02-01 12:00:00") from None
    if last < first:
        raise BadInput("the second time is before the first; swap them")
    return first, last


def _pair(text: str) -> tuple[str, str]:
    first, _, last = (part.strip() for part in text.partition(","))
    if not first or not last or "," in last:
        raise BadInput("expected two snapshot ids or two tags, such as 12,20")
    return first, last


class ScanOptions(BaseOptions):
    """The start of a read, and the waits of a reader."""

    @property
    def startup_mode(self) -> StartupMode | None:
        """None if no option names a start. Raises BadInput for options that contradict each other."""
        places = [key for key in _PLACES if self.is_given(key)]
        if len(places) > 1:
            raise BadInput(f"options {' and '.join(places)} each choose where reading begins; unset all but one")
        mode = self._word("scan.mode")
        if mode in ("", "default"):
            return _PLACES[places[0]] if places else None
        if mode == "full":
            mode = StartupMode.LATEST_FULL
        try:
            startup = StartupMode(mode)
        except ValueError:
            raise BadInput(f"option scan.mode = {mode!r}: expected one of {', '.join(StartupMode)}") from None
        self._check_place(startup, places)
        return startup

    def _check_place(self, mode: StartupMode, places: list[str]) -> None:
        fitting = [key for key, required_mode in _PLACES.items() if required_mode is mode]
        if mode is StartupMode.FROM_SNAPSHOT_FULL:
            fitting = ["scan.snapshot-id"]
        if fitting and not places:
            raise BadInput(f"option scan.mode = {mode} needs {' or '.join(fitting)}; set it")
        if wrong := [key for key in places if key not in fitting]:
            raise BadInput(f"option {wrong[0]} can't be combined with scan.mode = {mode}; unset one of them")

    scan_snapshot_id = OptionValue[int | None]("scan.snapshot-id")
    scan_tag = OptionValue[str | None]("scan.tag-name")
    scan_watermark_ms = OptionValue[int | None]("scan.watermark")
    # A tag, `watermark-` with a number, or a snapshot id
    scan_version = OptionValue[str | None]("scan.version")

    @property
    def scan_timestamp_ms(self) -> int | None:
        """The time of `scan.timestamp-millis`, or of `scan.timestamp`, which is in the local time zone."""
        if (ms := self._optional("scan.timestamp-millis", parse_long)) is not None:
            return ms
        return self._optional("scan.timestamp", _local_time_ms)

    scan_file_creation_time_ms = OptionValue[int | None]("scan.file-creation-time-millis")
    scan_creation_time_ms = OptionValue[int | None]("scan.creation-time-millis")
    # The only bucket that is read in every partition
    scan_bucket = OptionValue[int | None]("scan.bucket")
    # A stream ends before the first snapshot with a later watermark
    scan_bounded_watermark_ms = OptionValue[int | None]("scan.bounded.watermark")
    # Two snapshot ids or two tags: the first is not part of the range, the second is
    incremental_between = OptionValue[tuple[str, str] | None]("incremental-between", _pair)
    # Epoch milliseconds, or local times: the snapshots after the first, up to the second
    incremental_between_times_ms = OptionValue[tuple[int, int] | None](
        "incremental-between-timestamp", _parse_time_range
    )
    # The changes between the previous automatic tag and this one
    incremental_to_auto_tag = OptionValue[str | None]("incremental-to-auto-tag")
    incremental_scan_mode = EnumValue("incremental-between-scan-mode", IncrementalScanMode)
    # Whether tags in `incremental-between` mean the snapshots between them, not the difference of their rows
    tags_stand_for_snapshots = OptionValue[bool]("incremental-between-tag-to-snapshot")
    discovery_interval_ms = OptionValue[int]("continuous.discovery-interval")

    # How old a snapshot must be before a follower reads it
    snapshot_delay_ms = OptionValue[int]("streaming.read.snapshot.delay")

    consumer_id = OptionValue[str | None]("consumer-id")
    consumer_mode = EnumValue("consumer.mode", ConsumerMode)
    # Whether a consumer starts again, whatever its position is
    ignores_consumer_progress = OptionValue[bool]("consumer.ignore-progress")
    # Whether `$audit_log` and `$binlog` have a column `_SEQUENCE_NUMBER`
    reads_sequence_numbers = OptionValue[bool]("table-read.sequence-number.enabled")
    streaming_read_append_overwrite = OptionValue[bool]("streaming-read-append-overwrite")
    streaming_read_overwrite = OptionValue[bool]("streaming-read-overwrite")
