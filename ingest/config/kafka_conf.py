"""`--kafka-conf` of Paimon's actions, as settings of a Kafka source.

Source: Java's `kafka/KafkaActionUtils`. A key without a counterpart is refused; the message names it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tidelake.errors import BadInput
from tidelake.ingest.config.java_login import java_login
from tidelake.ingest.source_settings import KafkaSettings

_PROPERTIES: Final = "properties."
_REGISTRY: Final = "schema.registry."
_CONFIGURED_ELSEWHERE: Final = frozenset(
    {"bootstrap_servers", "topics", "topic_pattern", "start", "until", "until_timestamp_ms", "group_id"}
)
_OFFSETS_EXAMPLE: Final = "partition:0,offset:42;partition:1,offset:300"


def source_settings(kafka_conf: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return `source`, `format` and `format_options` of a configuration. Raises BadInput for a key or value that can't
    be translated.
    """
    kafka = dict(kafka_conf)
    format_ = kafka.pop("value.format", None)
    if format_ is None:
        raise BadInput("--kafka-conf value.format is missing. Name it: --kafka-conf value.format=debezium-json")
    of_format = {key: kafka.pop(key) for key in [key for key in kafka if key.startswith(_REGISTRY)]}
    found = {"source": {"type": "kafka", **_source(kafka)}, "format": format_}
    return {**found, "format_options": of_format} if of_format else found


def _source(kafka: dict[str, str]) -> dict[str, Any]:
    """Return the settings of `source`. Known keys are removed from `kafka`; the keys that remain are unknown."""
    source: dict[str, Any] = {}
    for key, setting, read in _PLAIN:
        if key in kafka:
            source[setting] = read(kafka.pop(key))
    if "bootstrap_servers" not in source:
        raise BadInput("--kafka-conf properties.bootstrap.servers is missing. Name a broker: host:port")
    source |= _start(kafka, source)
    source |= _end(kafka)
    if (login := kafka.pop(f"{_PROPERTIES}sasl.jaas.config", None)) is not None:
        source |= java_login(login, f"--kafka-conf {_PROPERTIES}sasl.jaas.config")
    for key in [key for key in kafka if key.startswith(_PROPERTIES)]:
        setting = key.removeprefix(_PROPERTIES).replace(".", "_").replace("-", "_")
        if setting in KafkaSettings.__struct_fields__ and setting not in _CONFIGURED_ELSEWHERE:
            source[setting] = kafka.pop(key)
    if kafka:
        raise BadInput(
            f"--kafka-conf {', '.join(sorted(kafka))}: this setting is not supported. Leave it out. "
            "`tidelake help configuration` lists the settings of a Kafka source; set them with --set source.NAME=VALUE"
        )
    return source


def _start(kafka: dict[str, str], source: Mapping[str, Any]) -> dict[str, Any]:
    mode = kafka.pop("scan.startup.mode", "earliest-offset")
    match mode:
        case "earliest-offset" | "latest-offset":
            return {"start": mode.removesuffix("-offset")}
        case "timestamp":
            key = "scan.startup.timestamp-millis"
            return {"start": {"timestamp_ms": _number(key, _required(kafka, key, mode))}}
        case "specific-offsets":
            key = "scan.startup.specific-offsets"
            topics = source.get("topics") or []
            if len(topics) != 1:
                raise BadInput(f"--kafka-conf {key}: the offsets must be of a single topic. Name one topic in `topic`")
            return {"start": {"offsets": {topics[0]: _offsets(key, _required(kafka, key, mode))}}}
        case "group-offsets":
            if "group_id" not in source:
                raise BadInput(
                    "--kafka-conf scan.startup.mode=group-offsets: the consumer group is missing. Add "
                    "properties.group.id, or start with earliest-offset"
                )
            return {"start": {"group": source["group_id"]}}
    raise BadInput(
        f"--kafka-conf scan.startup.mode={mode}: expected earliest-offset, latest-offset, timestamp, specific-offsets "
        "or group-offsets"
    )


def _end(kafka: dict[str, str]) -> dict[str, Any]:
    mode = kafka.pop("scan.bounded.mode", "unbounded")
    match mode:
        case "unbounded":
            return {}
        case "latest-offset":
            return {"until": "end"}
        case "timestamp":
            key = "scan.bounded.timestamp-millis"
            return {"until_timestamp_ms": _number(key, _required(kafka, key, mode))}
    raise BadInput(f"--kafka-conf scan.bounded.mode={mode}: expected unbounded, latest-offset or timestamp")


def _required(kafka: dict[str, str], key: str, mode: str) -> str:
    if key not in kafka:
        raise BadInput(f"--kafka-conf {key} is missing: mode {mode} needs it")
    return kafka.pop(key)


def _number(key: str, text: str) -> int:
    if not re.fullmatch(r"\d+", text):
        raise BadInput(f"--kafka-conf {key}={text}: expected epoch milliseconds, such as 1700000000000")
    return int(text)


def _offsets(key: str, text: str) -> dict[int, int]:
    found = [re.fullmatch(r"partition:(\d+),offset:(\d+)", part.strip()) for part in text.split(";") if part.strip()]
    if not found or None in found:
        raise BadInput(f"--kafka-conf {key}={text}: write {_OFFSETS_EXAMPLE}")
    return {int(one[1]): int(one[2]) for one in found if one is not None}


def _names(text: str) -> list[str]:
    return [name.strip() for name in re.split("[;,]", text) if name.strip()]


_PLAIN: Final[Sequence[tuple[str, str, Callable[[str], Any]]]] = (
    ("properties.bootstrap.servers", "bootstrap_servers", _names),
    ("topic", "topics", _names),
    ("topic-pattern", "topic_pattern", str),
    ("properties.group.id", "group_id", str),
)
