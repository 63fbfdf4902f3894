"""Options of what is done for a table after its commits: automatic tags, partitions that end.

Source: Java `CoreOptions.java`.
"""

from __future__ import annotations

import re
from datetime import UTC, timedelta, timezone, tzinfo
from enum import StrEnum
from typing import Final
from zoneinfo import ZoneInfo

from storage.errors import BadInput
from storage.options.base_options import BaseOptions
from storage.options.option_value import EnumValue, OptionValue

_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?")


class TagCreation(StrEnum):
    """When a tag is made by itself: never, when a period of the wall clock or of the watermark is over, or after each
    batch write.
    """

    NONE = "none"
    PROCESS_TIME = "process-time"
    WATERMARK = "watermark"
    BATCH = "batch"


class PartitionExpirationStrategy(StrEnum):
    """By which time a partition expires: of its values, or of its newest file."""

    VALUES_TIME = "values-time"
    UPDATE_TIME = "update-time"


class MaintenanceOptions(BaseOptions):
    # ------------------------------------------------------------ tags

    tag_creation = EnumValue("tag.automatic-creation", TagCreation)

    @property
    def tag_period(self) -> str:
        """How often automatic tags are made: daily, hourly, two-hours, or by a duration (then they name minutes)."""
        return "duration" if self.is_given("tag.creation-period-duration") else self._word("tag.creation-period")

    tag_period_duration_ms = OptionValue[int | None]("tag.creation-period-duration")
    tag_period_format = OptionValue[str]("tag.period-formatter")
    # How long after the end of its period a tag is made
    tag_creation_delay_ms = OptionValue[int]("tag.creation-delay")
    # How many automatic tags stay; after batch writes: tags of any kind
    tag_num_retained_max = OptionValue[int | None]("tag.num-retained-max")
    tag_default_time_retained_ms = OptionValue[int | None]("tag.default-time-retained")
    # Whether a period without a snapshot gets a tag all the same
    tag_automatic_completion = OptionValue[bool]("tag.automatic-completion")
    tag_time_expire_enabled = OptionValue[bool]("tag.time-expire-enabled")
    tag_create_success_file = OptionValue[bool]("tag.create-success-file")
    tag_batch_customized_name = OptionValue[str | None]("tag.batch.customized-name")

    @property
    def watermark_time_zone(self) -> tzinfo | None:
        """In which watermarks become times of tags."""
        return _zone("sink.watermark-time-zone", self._trimmed("sink.watermark-time-zone"))

    @property
    def process_time_zone(self) -> tzinfo | None:
        """In which commits have times. None is the local one."""
        return _zone("sink.process-time-zone", self._trimmed("sink.process-time-zone"))

    # ------------------------------------------------------------ partitions

    partition_expiration_ms = OptionValue[int | None]("partition.expiration-time")
    partition_expiration_strategy = EnumValue("partition.expiration-strategy", PartitionExpirationStrategy)
    partition_expiration_check_interval_ms = OptionValue[int]("partition.expiration-check-interval")
    # How many partitions go at most with one look, and with one commit
    partition_expiration_max_num = OptionValue[int]("partition.expiration-max-num")
    partition_expiration_batch_size = OptionValue[int | None]("partition.expiration-batch-size")
    end_input_check_partition_expire = OptionValue[bool]("end-input.check-partition-expire")
    partition_timestamp_pattern = OptionValue[str | None]("partition.timestamp-pattern")
    partition_timestamp_formatter = OptionValue[str | None]("partition.timestamp-formatter")
    # Whether rows of a partition that names no time are refused
    partition_timestamp_strict = OptionValue[bool]("partition.timestamp-format.strict")
    # Whether a batch write marks the partitions as done that it wrote to
    partition_end_input_to_done = OptionValue[bool]("partition.end-input-to-done")
    compaction_skip_expired_partitions = OptionValue[bool]("compaction.skip-expired-partitions")


def _zone(option: str, name: str) -> tzinfo | None:
    """`Asia/Shanghai`, `UTC`, `+08:00`, `GMT+8`; None for none. Raises BadInput."""
    if not name:
        return None
    if name in ("UTC", "Z", "GMT", "UT"):
        return UTC
    if (offset := _OFFSET.fullmatch(name)) is not None:
        minutes = int(offset[2]) * 60 + int(offset[3] or 0)
        return timezone(timedelta(minutes=minutes if offset[1] == "+" else -minutes))
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise BadInput(f"option {option} = {name!r} is no time zone; write one like Asia/Shanghai or +08:00") from None
