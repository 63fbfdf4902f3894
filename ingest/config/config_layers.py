"""Settings from a YAML text, the environment and flags. Each setting keeps the place where it was written.

Later layers override earlier ones: file, then environment, then flags. `TIDELAKE_SOURCE__BOOTSTRAP_SERVERS=…` and
`source.bootstrap_servers=…` (a flag) both set `bootstrap_servers` below `source`. Values of variables and flags are
text; a value that begins with `[` or `{` is YAML.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final

from tidelake.errors import ConfigError
from tidelake.ingest.config.yaml_settings import SECRET_IN_TEXT, Path, SettingPlace, read_settings
from tidelake.ingest.secrets import HIDDEN, SECRET_NAME

ENVIRONMENT_PREFIX: Final = "TIDELAKE_"
_LEVEL: Final = "__"
_LEAST_SIMILARITY: Final = 0.85  # of a misspelt name; others have a meaning of their own
_OF_SERVICE: Final = re.compile(r"_SERVICE_(HOST|PORT(_\w+)?)$")
_OF_SERVICE_PORT: Final = re.compile(r"_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$")
_SERVICE_URL: Final = re.compile(r"(tcp|udp|sctp)://")


@dataclass(slots=True)
class ConfigLayers:
    """Settings of several layers.

    values: nested mappings and lists of plain values.
    places: the place of each mapping member and list item, by its path.
    """

    values: dict[str, Any] = field(default_factory=dict)
    places: dict[Path, SettingPlace] = field(default_factory=dict)

    def place(self, path: Path) -> SettingPlace:
        """Return the place where this path was written, or else the place of its nearest parent."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, SettingPlace("configuration"))

    def put(self, path: Path, text: str, place: SettingPlace) -> None:
        """Set one value from a layer whose values are text. Raises ConfigError if a part of the path is no mapping."""
        target: Any = self.values
        for depth, part in enumerate(path[:-1], start=1):
            target = target.setdefault(part, {})
            self.places.setdefault(path[:depth], place)
            if not isinstance(target, dict):
                inner = ".".join(map(str, path[:depth]))
                raise place.error(f"`{inner}` is not a group of settings", f"Set `{inner}` as a whole.")
        target[path[-1]] = text if _is_secret(path) else _from_text(text, place)
        self.places[path] = place


def read_yaml(text: str, name: str) -> ConfigLayers:
    """Return the first layer.

    name: the file's name in messages.

    Raises ConfigError for a text that is no YAML mapping of settings.
    """
    values, places = read_settings(text, name)
    if values is None:
        values = {}
    elif not isinstance(values, dict):
        raise SettingPlace(f"{name}:1").error(
            "this is not a group of settings", "Begin with settings such as `pipeline: …`."
        )
    return ConfigLayers(values, {(): SettingPlace(name), **places})


def add_environment(layer: ConfigLayers, environment: Mapping[str, str], known: Collection[Path]) -> None:
    """Add the second layer.

    known: paths of the settings, those of the first level and those below them.

    Raises ConfigError for a variable that is meant for a setting and names none: one with `__` in its name, or one
    whose name is nearly that of a setting. Others may belong to other programs, and are ignored.
    """
    sections = {str(path[0]) for path in known}
    for variable, text in sorted(environment.items()):
        if not variable.upper().startswith(ENVIRONMENT_PREFIX) or _is_set_by_kubernetes(variable, text):
            continue
        path = tuple(variable[len(ENVIRONMENT_PREFIX) :].lower().split(_LEVEL))
        is_named = path[0] in sections and variable.startswith(ENVIRONMENT_PREFIX)
        if not is_named:
            _check_other_variable(variable, path, known, sections)
            continue
        layer.put(path, text, SettingPlace(f"environment variable {variable}", _shown(path, text)))


def _check_other_variable(variable: str, path: tuple[str, ...], known: Collection[Path], sections: set[str]) -> None:
    """Raise ConfigError if the variable is meant for a setting."""
    name = _LEVEL.join(path)
    settings = [_LEVEL.join(map(str, of)) for of in known]
    if similar := get_close_matches(name, settings, n=1, cutoff=_LEAST_SIMILARITY):
        wanted: str | None = similar[0]
    elif len(path) > 1 and (section := get_close_matches(path[0], sections, n=1)):
        wanted = _LEVEL.join((section[0], *path[1:]))
    else:
        wanted = None
    if wanted is not None or len(path) > 1:
        remedy = f"Possible: {', '.join(f'{ENVIRONMENT_PREFIX}{section.upper()}' for section in sorted(sections))}."
        raise SettingPlace(f"environment variable {variable}").error(
            f"no setting `{'.'.join(path)}`",
            remedy if wanted is None else f"Did you mean `{ENVIRONMENT_PREFIX}{wanted.upper()}`?",
        )


def _is_set_by_kubernetes(variable: str, text: str) -> bool:
    """Return whether Kubernetes sets the variable in each container, for a service whose name begins with `tidelake`.

    Such a service has `TIDELAKE_…_SERVICE_HOST`, `TIDELAKE_…_PORT=tcp://10.0.0.1:80` and others.
    """
    return _OF_SERVICE.search(variable) is not None or (
        _OF_SERVICE_PORT.search(variable) is not None and (_SERVICE_URL.match(text) is not None or "_PORT_" in variable)
    )


def add_flags(layer: ConfigLayers, flags: Iterable[str]) -> None:
    """Add the third layer, for example `source.path=/data/changes`. Raises ConfigError for a flag without `=`."""
    for flag in flags:
        name, equals, text = flag.partition("=")
        path = tuple(name.strip().split("."))
        if not equals or not all(path):
            raise SettingPlace(f"flag {name}").error(
                "a setting must be given as name=value", "Example: checkpoint.interval_ms=5000"
            )
        layer.put(path, text, SettingPlace(f"flag {name}", _shown(path, text)))


def _shown(path: Path, text: str) -> str:
    return HIDDEN if _is_secret(path) else SECRET_IN_TEXT.sub(rf"\1: {HIDDEN}", text)


def _is_secret(path: Path) -> bool:
    return any(SECRET_NAME.search(str(part)) for part in path)


def _from_text(text: str, place: SettingPlace) -> Any:
    if not text.lstrip().startswith(("[", "{")):
        return text
    try:
        return read_settings(text, place.name)[0]
    except ConfigError:
        raise place.error("not YAML", "A value that begins with [ or { is a YAML list or mapping.") from None
