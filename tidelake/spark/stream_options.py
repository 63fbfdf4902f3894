"""Options of `spark.readStream.format("tidelake")` only: how much a batch reads, and which rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tidelake.spark.option_values import parse_boolean, value_of, whole_number
from tidelake.storage.base.errors import BadInput
from tidelake.storage.read.stream.micro_batches import BatchLimits

MAX_FILES: Final = "read.stream.maxfilespertrigger"
MAX_BYTES: Final = "read.stream.maxbytespertrigger"
MAX_ROWS: Final = "read.stream.maxrowspertrigger"
MIN_ROWS: Final = "read.stream.minrowspertrigger"
MAX_DELAY_MS: Final = "read.stream.maxtriggerdelayms"
SKIP_OVERWRITES: Final = "skip-overwrites"

STREAM_OPTIONS: Final = (MAX_FILES, MAX_BYTES, MAX_ROWS, MIN_ROWS, MAX_DELAY_MS, SKIP_OVERWRITES)


@dataclass(frozen=True)
class StreamOptions:
    """The parsed options.

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
