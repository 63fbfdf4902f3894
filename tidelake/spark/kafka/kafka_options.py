"""The options of `format("tidelake-kafka")`: which partitions, from which to which offset, how much at a time.

Names and meanings are those of Spark's own connector; the case of names is ignored.

Source: Spark `KafkaSourceProvider.scala`, `KafkaOffsetReaderAdmin.scala`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import structs

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import BadInput
from tidelake.ingest.source_settings import KafkaSettings
from tidelake.spark.kafka.client_options import PREFIX, client_options, client_settings
from tidelake.spark.kafka.connector_offsets import EARLIEST, LATEST, Offsets, of_text, partitions_of_text
from tidelake.spark.option_values import parse_boolean, split_names, value_of, whole_number
from tidelake.storage.model.messages import did_you_mean

FORMAT: Final = "tidelake-kafka"
STARTING_GROUP: Final = "startingGroup"
MAX_RECORD_BYTES: Final = "maxRecordBytes"
UNREACHABLE_AFTER_MS: Final = "unreachableAfterMs"

_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}
_SUBSCRIPTIONS: Final = ("subscribe", "subscribePattern", "assign")
_STARTS: Final = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", STARTING_GROUP)
_ENDS: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_STRATEGY: Final = "startingOffsetsByTimestampStrategy"
CONTINUING_OFFSETS: Final = "continuingOffsets"
_LIMITS: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_DIVISION: Final = ("minPartitions", "maxRecordsPerPartition")
_HEADERS: Final = "headers"
_OTHERS: Final = (
    CONTINUING_OFFSETS,
    "failOnDataLoss",
    "includeHeaders",
    _HEADERS,
    MAX_RECORD_BYTES,
    UNREACHABLE_AFTER_MS,
)
_SPARK_TIMEOUT_OPTIONS: Final = (  # the connector's retries, and the names of its groups
    *("kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "groupIdPrefix"),
)
_OPTIONS: Final = (
    *(*_SUBSCRIPTIONS, *_STARTS, *_ENDS, _STRATEGY, *_LIMITS),
    *(*_DIVISION, *_OTHERS, *_SPARK_TIMEOUT_OPTIONS),
)
_DURATION: Final = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?")
_UNIT_MS: Final = {None: 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DELAY_MS: Final = 15 * 60_000


@dataclass(frozen=True)
class Boundary:
    """The start or the end of a read. Exactly one field is set.

    everywhere: EARLIEST or LATEST
    offsets: of each partition; EARLIEST and LATEST are allowed as offsets
    timestamp_ms: the first record that is not older
    timestamps_ms: of each partition
    group: the committed offsets of a consumer group
    """

    everywhere: int | None = None
    offsets: Offsets | None = None
    timestamp_ms: int | None = None
    timestamps_ms: Offsets | None = None
    group: str | None = None


@dataclass(frozen=True)
class KafkaReadOptions:
    """The parsed options.

    settings: of the client, with topics or their pattern
    assigned: None for all partitions of the topics
    start: None for the default, which differs between batches (earliest) and streams (latest)
    end: of batches
    needs_match: a partition without a record as new as a timestamp is an error; otherwise it starts at its end
    max_offsets: the largest number of offsets of a micro-batch
    min_offsets: a micro-batch waits for this number of offsets
    max_delay_ms: how long it waits for them
    min_partitions: the minimal number of tasks
    max_records: the largest number of records of a task
    fails_on_loss: whether lost records end the query; otherwise they are named in a warning
    header_names: the headers to read; None for all
    continued: where a new stream begins to read these partitions, whatever `start` is
    """

    settings: KafkaSettings
    assigned: frozenset[TopicPartition] | None
    start: Boundary | None
    end: Boundary | None
    needs_match: bool
    max_offsets: int | None
    min_offsets: int | None
    max_delay_ms: int
    min_partitions: int | None
    max_records: int | None
    fails_on_loss: bool
    has_headers: bool
    header_names: frozenset[str] | None
    continued: Offsets = field(default_factory=dict)

    @property
    def has_limits(self) -> bool:
        return self.max_offsets is not None or self.min_offsets is not None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> KafkaReadOptions:
        """Parse options.

        Raises BadInput, and UnsupportedFeature for options of a Kafka client that would have another effect here.
        """
        options = {key.lower(): value for key, value in given.items()}
        _check_names(options)
        settings = _with_topics(client_settings(options), options)
        if (largest := _value(options, MAX_RECORD_BYTES, whole_number)) is not None:
            settings = structs.replace(settings, max_record_bytes=largest)
        if (unreachable_after_ms := _value(options, UNREACHABLE_AFTER_MS, whole_number)) is not None:
            settings = structs.replace(settings, unreachable_after_ms=unreachable_after_ms)
        header_names = _value(options, _HEADERS, split_names)
        has_headers = _value(options, "includeHeaders", parse_boolean, header_names is not None)
        if header_names is not None and not has_headers:
            raise BadInput(
                "option headers names headers to read, but includeHeaders = false leaves out all headers. Set one of "
                "them"
            )
        return cls(
            settings,
            partitions_of_text("assign", options["assign"]) if "assign" in options else None,
            _boundary(options, _STARTS),
            _boundary(options, _ENDS),
            _value(options, _STRATEGY, _is_strict, True),
            _value(options, "maxOffsetsPerTrigger", whole_number),
            _value(options, "minOffsetsPerTrigger", whole_number),
            _value(options, "maxTriggerDelay", _milliseconds, _DELAY_MS),
            _value(options, "minPartitions", whole_number),
            _value(options, "maxRecordsPerPartition", whole_number),
            _value(options, "failOnDataLoss", parse_boolean, True),
            has_headers,
            header_names,
            of_text(CONTINUING_OFFSETS, options.get(CONTINUING_OFFSETS.lower(), "{}")),
        )


def options_of(settings: KafkaSettings) -> dict[str, str]:
    """Return the options of a pipeline's source. The caller adds `start` and `until`."""
    options = client_options(settings)
    if settings.topic_pattern is not None:
        options["subscribePattern"] = settings.topic_pattern
    else:
        options["subscribe"] = ",".join(settings.topic_names)
    options[MAX_RECORD_BYTES] = str(settings.max_record_bytes)
    options[UNREACHABLE_AFTER_MS] = str(settings.unreachable_after_ms)
    return options


def _check_names(options: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in _OPTIONS}
    for key in options:
        if not key.startswith(PREFIX) and key not in known:
            hint = did_you_mean(key, _OPTIONS) or "."
            raise BadInput(
                f"format tidelake-kafka has no option {key!r}{hint} Its options are {', '.join(_OPTIONS)}, and kafka.…"
            )


def _with_topics(settings: KafkaSettings, options: Mapping[str, str]) -> KafkaSettings:
    given = [name for name in _SUBSCRIPTIONS if name.lower() in options]
    if len(given) != 1:
        raise BadInput(
            f"set exactly one of the options {', '.join(_SUBSCRIPTIONS)} to choose what to read; given: {given}"
        )
    text = options[given[0].lower()]
    if given[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise BadInput(f"option subscribePattern = {text!r}: {error}") from None
        return structs.replace(settings, topic_pattern=text)
    if given[0] == "assign":
        topics = sorted({partition.topic for partition in partitions_of_text("assign", text)})
    else:
        topics = sorted({topic.strip() for topic in text.split(",")} - {""})
    if not topics:
        raise BadInput(f"option {given[0]} = {text!r} names no topic")
    return structs.replace(settings, topics=topics)


def _boundary(options: Mapping[str, str], names: tuple[str, ...]) -> Boundary | None:
    given = [name for name in names if name.lower() in options]
    if not given:
        return None
    if len(given) > 1:
        raise BadInput(f"options {' and '.join(given)} have the same effect; set one of them")
    name, text = given[0], options[given[0].lower()].strip()
    if name == STARTING_GROUP:
        return Boundary(group=text)
    if name.endswith("ByTimestamp"):
        return Boundary(timestamps_ms=of_text(name, text))
    if name.endswith("Timestamp"):
        return Boundary(timestamp_ms=value_of(options, name.lower(), _epoch_ms, None))
    if text.lower() in _WORDS:
        found = Boundary(everywhere=_WORDS[text.lower()])
    else:
        found = Boundary(offsets=of_text(name, text))
    if name == "endingOffsets" and (found.everywhere == EARLIEST or EARLIEST in (found.offsets or {}).values()):
        raise BadInput(f"option endingOffsets = {text!r}: a read can't end at the earliest offset")
    return found


def _value(options: Mapping[str, str], name: str, parse: Any, default: Any = None) -> Any:
    if name.lower() not in options:
        return default
    return value_of({name: options[name.lower()]}, name, parse, default)


def _is_strict(text: str) -> bool:
    if text.lower() not in ("error", "latest"):
        raise ValueError("expected error or latest")
    return text.lower() == "error"


def _epoch_ms(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError("expected epoch milliseconds")
    return int(text)


def _milliseconds(text: str) -> int:
    found = _DURATION.fullmatch(text.lower())
    if found is None:
        raise ValueError("expected a duration such as 15m, 30s or 500ms")
    return int(found[1]) * _UNIT_MS[found[2]]
