"""Settings out of a YAML text, the environment and flags, each remembering where it was written.

Later layers win: file, then environment, then flags. `TIDELAKE_SOURCE__BOOTSTRAP_SERVERS=…` and
`source.bootstrap_servers=…` (a flag) both set `bootstrap_servers` below `source`. Their values are text; one that
begins with `[` or `{` is YAML.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import yaml

from ingest.settings import HIDDEN, SECRET_NAME
from storage.errors import BadInput

Path: TypeAlias = tuple[str | int, ...]

ENVIRONMENT_PREFIX: Final = "TIDELAKE_"
_LEVEL: Final = "__"
_MERGE_TAG: Final = "tag:yaml.org,2002:merge"
_SECRET_IN_TEXT: Final = re.compile(rf"((?:{SECRET_NAME.pattern})\w*).+", re.IGNORECASE)


class ConfigError(BadInput):
    """The configuration can't be used. The message quotes where it says so, with secrets hidden."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a setting was written.

    name: `shop.yaml:12`, or a variable or flag. quote: what stands there, secrets hidden.
    """

    name: str
    quote: str = ""

    def error(self, reason: str, remedy: str) -> ConfigError:
        quoted = f"\n    {self.quote}" if self.quote else ""
        return ConfigError(f"{self.name}: {reason}{quoted}\n{remedy}")


@dataclass(slots=True)
class LayeredValues:
    """values: nested mappings and lists of plain values. places: path of each mapping member and list item."""

    values: dict[str, Any] = field(default_factory=dict)
    places: dict[Path, Place] = field(default_factory=dict)

    def place(self, path: Path) -> Place:
        """Where this path was written, or the nearest thing around it."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, Place("configuration"))

    def put(self, path: Path, text: str, place: Place) -> None:
        """Set one value from a layer that holds text. Raises ConfigError when a part of the path is no mapping."""
        target: Any = self.values
        for depth, part in enumerate(path[:-1], start=1):
            target = target.setdefault(part, {})
            self.places.setdefault(path[:depth], place)
            if not isinstance(target, dict):
                inner = ".".join(map(str, path[:depth]))
                raise place.error(f"`{inner}` is not a group of settings", f"Set `{inner}` as a whole.")
        target[path[-1]] = text if _is_secret(path) else _from_text(text, place)
        self.places[path] = place


def read_yaml(text: str, name: str) -> LayeredValues:
    """The first layer. name: of the file, for messages. Raises ConfigError for what is no YAML mapping of settings."""
    layer = LayeredValues(places={(): Place(name)})
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if root is None:
            return layer
        lines = _hide_secrets(text, root).splitlines()
        values = _Reader(loader, name, lines, layer.places).read(root, ())
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line if error.problem_mark else 0
        quote = _SECRET_IN_TEXT.sub(rf"\1: {HIDDEN}", text.splitlines()[line].strip()) if text else ""
        raise Place(f"{name}:{line + 1}", quote).error(f"not YAML: {error.problem}", "Mend the line.") from None
    except yaml.YAMLError as error:
        raise Place(name).error(f"not YAML: {error}", "Mend the file.") from None
    if not isinstance(values, dict):
        raise Place(f"{name}:1").error("this is no group of settings", "Begin with `pipeline: …` and the like.")
    layer.values = values
    return layer


def add_environment(layer: LayeredValues, environment: Mapping[str, str], known: Collection[str]) -> None:
    """The second layer. known: the outermost names; variables that begin otherwise are somebody else's."""
    for variable, text in sorted(environment.items()):
        if variable.startswith(ENVIRONMENT_PREFIX):
            path = tuple(variable.removeprefix(ENVIRONMENT_PREFIX).lower().split(_LEVEL))
            if path[0] in known:
                layer.put(path, text, Place(f"environment variable {variable}", _shown(path, text)))


def add_flags(layer: LayeredValues, flags: Iterable[str]) -> None:
    """The third layer: `source.path=/data/changes`. Raises ConfigError for a flag without `=`."""
    for flag in flags:
        name, equals, text = flag.partition("=")
        path = tuple(name.strip().split("."))
        if not equals or not all(path):
            raise Place(f"flag {name}").error(
                "a setting is given as name=value", "Example: checkpoint.interval_ms=5000"
            )
        layer.put(path, text, Place(f"flag {name}", _shown(path, text)))


def _shown(path: Path, text: str) -> str:
    return HIDDEN if _is_secret(path) else _SECRET_IN_TEXT.sub(rf"\1: {HIDDEN}", text)


def _is_secret(path: Path) -> bool:
    return any(SECRET_NAME.search(str(part)) for part in path)


def _from_text(text: str, place: Place) -> Any:
    if not text.lstrip().startswith(("[", "{")):
        return text
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise place.error("not YAML", "A value that begins with [ or { is a YAML list or mapping.") from None


class _Reader:
    """Turns YAML nodes into values, and notes the line of each."""

    def __init__(self, loader: yaml.SafeLoader, name: str, lines: list[str], places: dict[Path, Place]) -> None:
        self._loader = loader
        self._name = name
        self._lines = lines
        self._places = places

    def read(self, node: yaml.Node, path: Path) -> Any:
        if isinstance(node, yaml.MappingNode):
            self._check_names(node)
            # Merge keys: `<<: *common`; what they bring comes first, and is overridden.
            self._loader.flatten_mapping(node)
            return {name: self._member(at, inner, (*path, name)) for name, at, inner in self._members(node)}
        if isinstance(node, yaml.SequenceNode):
            return [self._member(item, item, (*path, at)) for at, item in enumerate(node.value)]
        return self._loader.construct_object(node)

    def _members(self, node: yaml.MappingNode) -> Iterator[tuple[Any, yaml.Node, yaml.Node]]:
        named = (member for member in node.value if member[0].tag != _MERGE_TAG)
        return ((self._loader.construct_object(at, deep=True), at, inner) for at, inner in named)

    def _check_names(self, node: yaml.MappingNode) -> None:
        seen: set[Any] = set()
        for name, at, _ in self._members(node):
            if not isinstance(name, (str, int)):
                raise self._place(at).error(f"`{name}` can't be a name", "Names are text or whole numbers.")
            if name in seen:
                raise self._place(at).error(f"`{name}` stands here twice", "Keep one of them.")
            seen.add(name)

    def _member(self, at: yaml.Node, node: yaml.Node, path: Path) -> Any:
        self._places[path] = self._place(at)
        return self.read(node, path)

    def _place(self, node: yaml.Node) -> Place:
        line = node.start_mark.line
        return Place(f"{self._name}:{line + 1}", self._lines[line].strip())


def _hide_secrets(text: str, root: yaml.Node) -> str:
    """The text with the values of secrets replaced; lines keep their numbers."""
    spans: list[tuple[int, int]] = []
    _find_secrets(root, False, spans)
    for start, end in sorted(set(spans), reverse=True):
        text = text[:start] + HIDDEN + "\n" * text.count("\n", start, end) + text[end:]
    return text


def _find_secrets(node: yaml.Node, secret: bool, spans: list[tuple[int, int]]) -> None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            _find_secrets(value, secret or bool(SECRET_NAME.search(str(key.value))), spans)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _find_secrets(item, secret, spans)
    elif secret:
        spans.append((node.start_mark.index, node.end_mark.index))
