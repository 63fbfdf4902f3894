"""Options of maintenance after commits: automatic tags and the expiry of partitions.

Source: Java `CoreOptions.java`.
"""

from __future__ import annotations

import re
from datetime import UTC, timedelta, timezone, tzinfo
from enum import StrEnum
from typing import Final
from zoneinfo import ZoneInfo

from tidelake.errors import BadInput
from tidelake.storage.model.options.base_options import BaseOptions
from tidelake.storage.model.options.option_value import EnumValue, OptionValue

_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?")


class TagCreation(StrEnum):
    """When tags are created automatically: never, at the end of a period of the wall clock or of the watermark, or
    after each batch write.
    """

    NONE = "none"
    PROCESS_TIME = "process-time"
    WATERMARK = "watermark"
    BATCH = "batch"


class PartitionExpirationStrategy(StrEnum):
    """The time that decides when a partition expires: that of its values, or that of its newest file."""

    VALUES_TIME = "values-time"
    UPDATE_TIME = "update-time"


class MaintenanceOptions(BaseOptions):
    # ------------------------------------------------------------ tags

    tag_creation = EnumValue("tag.automatic-creation", TagCreation)

    @property
    def tag_period(self) -> str:
        """The period of automatic tags: daily, hourly, two-hours, or a duration (then tag names have minutes)."""
        return "duration" if self.is_given("tag.creation-period-duration") else self._word("tag.creation-period")

    tag_period_duration_ms = OptionValue[int | None]("tag.creation-period-duration")
    tag_period_format = OptionValue[str]("tag.period-formatter")
    # How long after the end of its period a tag is created
    tag_creation_delay_ms = OptionValue[int]("tag.creation-delay")
    # How many automatic tags are kept; after batch writes: tags of any kind
    tag_num_retained_max = OptionValue[int | None]("tag.num-retained-max")
    tag_default_time_retained_ms = OptionValue[int | None]("tag.default-time-retained")
    # Whether a period without a snapshot gets a tag, too
    tag_automatic_completion = OptionValue[bool]("tag.automatic-completion")
    tag_time_expire_enabled = OptionValue[bool]("tag.time-expire-enabled")
    tag_create_success_file = OptionValue[bool]("tag.create-success-file")
    tag_batch_customized_name = OptionValue[str | None]("tag.batch.customized-name")

    @property
    def watermark_time_zone(self) -> tzinfo | None:
        """The time zone in which watermarks become times of tags."""
        return _zone("sink.watermark-time-zone", self._trimmed("sink.watermark-time-zone"))

    @property
    def process_time_zone(self) -> tzinfo | None:
        """The time zone of commit times. None: the local one."""
        return _zone("sink.process-time-zone", self._trimmed("sink.process-time-zone"))

    # ------------------------------------------------------------ partitions

    partition_expiration_ms = OptionValue[int | None]("partition.expiration-time")
    partition_expiration_strategy = EnumValue("partition.expiration-strategy", PartitionExpirationStrategy)
    partition_expiration_check_interval_ms = OptionValue[int]("partition.expiration-check-interval")
    # How many partitions expire at most in one check, and in one commit
    partition_expiration_max_num = OptionValue[int]("partition.expiration-max-num")
    partition_expiration_batch_size = OptionValue[int | None]("partition.expiration-batch-size")
    end_input_check_partition_expire = OptionValue[bool]("end-input.check-partition-expire")
    partition_timestamp_pattern = OptionValue[str | None]("partition.timestamp-pattern")
    partition_timestamp_formatter = OptionValue[str | None]("partition.timestamp-formatter")
    # Whether rows are rejected if their partition values are no time
    partition_timestamp_strict = OptionValue[bool]("partition.timestamp-format.strict")
    # Whether a batch write marks the partitions that it wrote to as done
    partition_end_input_to_done = OptionValue[bool]("partition.end-input-to-done")
    compaction_skip_expired_partitions = OptionValue[bool]("compaction.skip-expired-partitions")


def _zone(option: str, name: str) -> tzinfo | None:
    """Parse `Asia/Shanghai`, `UTC`, `+08:00`, `GMT+8`; returns None for an empty name. Raises BadInput."""
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
        raise BadInput(f"option {option} = {name!r} is not a time zone; use one like Asia/Shanghai or +08:00") from None
