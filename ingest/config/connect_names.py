"""Kafka Connect's names of its error handling options, as settings of `errors`.

They are accepted in every layer, as a whole name (`errors.log.enable: true`, as in a connector's JSON) or below
`errors`. A value that asks for Tidelake's fixed behaviour is accepted. Any other value is refused, and the message
names the alternative. Names and meanings: Kafka's `ConnectorConfig` and `SinkConnectorConfig`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tidelake.ingest.config.config_layers import ConfigLayers
from tidelake.ingest.config.yaml_settings import Path, SettingPlace

_GROUP: Final = "errors"
_TABLE_REMEDY: Final = (
    "Set `errors.dead_letters: {table: database.table}`, which `tidelake dead-letters list` shows, or leave "
    "both out: then they are files in the warehouse."
)

_EQUIVALENT_SETTINGS: Final[Mapping[str, Path]] = {
    "errors.tolerance": (_GROUP, "tolerance"),
    "errors.log.include.messages": (_GROUP, "log_include_messages"),
}

_FIXED_BEHAVIOR: Final[Mapping[str, tuple[str, str, str]]] = {
    "errors.log.enable": (
        "true",
        "the log always reports dead letters with topic, partition, offset and code, in at most one line every 10 s",
        "Leave it out. `errors.log_include_messages` decides whether the log also has the reason.",
    ),
    "errors.deadletterqueue.context.headers.enable": (
        "true",
        "a dead letter always has its topic, partition, offset and reason, in columns of its table",
        "Leave it out.",
    ),
    "errors.retry.timeout": (
        "0",
        "a record that can't be decoded is not tried again, as the result would be the same",
        "Leave it out. `source.unreachable_after_ms` limits how long a broker may be unreachable; "
        "`quarantine.retry_ms_min` and `quarantine.retry_ms_max` decide when a table that can't be written is tried "
        "again.",
    ),
}
"""Name to the only accepted value, the reason why no other is accepted, and the remedy."""

_UNSUPPORTED_SETTINGS: Final[Mapping[str, tuple[str, str]]] = {
    "errors.deadletterqueue.topic.name": ("dead letters go into a table, not into a topic", _TABLE_REMEDY),
    "errors.deadletterqueue.topic.replication.factor": (
        "dead letters go into a table, which has no replication factor",
        _TABLE_REMEDY,
    ),
    "errors.retry.delay.max.ms": (
        "a record that can't be decoded is not tried again, as the result would be the same",
        "Leave it out. `quarantine.retry_ms_max` limits the time between two tries of a table that can't be written.",
    ),
}

CONNECT_NAMES: Final = frozenset({*_EQUIVALENT_SETTINGS, *_FIXED_BEHAVIOR, *_UNSUPPORTED_SETTINGS})


def accepted_names() -> dict[str, str | list[Any]]:
    """Return each name that a configuration may have, with the setting of `errors` it means, or its only value: as
    text, and as YAML reads it.
    """
    fixed = {name: [only, {"true": True, "0": 0}[only]] for name, (only, _, _) in _FIXED_BEHAVIOR.items()}
    return {name: str(setting[-1]) for name, setting in _EQUIVALENT_SETTINGS.items()} | fixed


def take_connect_names(given: ConfigLayers, before: Mapping[Path, SettingPlace]) -> None:
    """Replace Kafka Connect's names in the newest layer by Tidelake's settings.

    before: the places of the layers below.

    Raises ConfigError for a name that is refused, and for a setting that the layer has under both names.
    """
    for path, name in list(_find_names(given.values, ())):
        setting = _EQUIVALENT_SETTINGS.get(name)
        if path == setting:
            continue
        value, place = _pop_path(given.values, path), given.place(path)
        if setting is None:
            _check(name, value, place)
            continue
        our_place = given.places.get(setting)
        if our_place is not None and our_place is not before.get(setting):
            raise place.error(
                f"`{name}` means the same as `{'.'.join(map(str, setting))}`, which is also given", "Keep one of them."
            )
        group = given.values.setdefault(_GROUP, {})
        if not isinstance(group, dict):
            raise given.place((_GROUP,)).error(f"`{_GROUP}` is not a group of settings", f"Write `{_GROUP}: {{…}}`.")
        group[setting[-1]] = value
        given.places[setting] = place


def _find_names(values: Mapping[Any, Any], above: Path) -> Iterator[tuple[Path, str]]:
    """Yield the path and the name of each. A name may be split at any dot, as YAML mappings and flags do."""
    for member, value in values.items():
        path = (*above, member)
        name = ".".join(map(str, path))
        if name in CONNECT_NAMES:
            yield path, name
        elif isinstance(value, dict) and any(one.startswith(f"{name}.") for one in CONNECT_NAMES):
            yield from _find_names(value, path)


def _pop_path(values: dict[Any, Any], path: Path) -> Any:
    """Remove the value and return it. Groups that become empty are removed, too."""
    member, *below = path
    if not below:
        return values.pop(member)
    found = _pop_path(values[member], tuple(below))
    if not values[member]:
        del values[member]
    return found


def _check(name: str, value: Any, place: SettingPlace) -> None:
    """Raise ConfigError unless the value asks for Tidelake's fixed behaviour."""
    if name in _UNSUPPORTED_SETTINGS:
        reason, remedy = _UNSUPPORTED_SETTINGS[name]
        raise place.error(f"`{name}`: {reason}", remedy)
    only, reason, remedy = _FIXED_BEHAVIOR[name]
    given = str(value).strip().lower()
    if given != only:
        raise place.error(f"`{name}: {given}`: {reason}", remedy)
