"""Reads settings from a YAML text: plain values, and the place of each.

A text that is no valid YAML, or that no configuration can contain, raises a ConfigError with line, column and what was
expected. This includes aliases that expand without end, values of unknown types, and characters that no path or name
may have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import yaml

from tidelake.errors import ConfigError
from tidelake.ingest.secrets import HIDDEN, SECRET_NAME

Path: TypeAlias = tuple[str | int, ...]

SECRET_IN_TEXT: Final = re.compile(rf"((?:{SECRET_NAME.pattern})\w*).+", re.IGNORECASE)

_MERGE_TAG: Final = "tag:yaml.org,2002:merge"
_PLAIN_TAGS: Final = frozenset({"tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"})
_EXPANDED_MAX: Final = 100_000  # values that aliases may add to the written ones
_LINE_BREAK: Final = re.compile("\r\n|[\n\r\x85\u2028\u2029]")  # the line breaks of YAML
_NO_TEXT: Final = re.compile("[\0\ud800-\udfff]")  # not allowed in file names, or in UTF-8
_QUOTE_MAX: Final = 200  # characters of a line
_Members: TypeAlias = dict[Any, tuple[yaml.Node, yaml.Node]]  # name to the nodes of name and value


@dataclass(frozen=True, slots=True)
class SettingPlace:
    """Where a setting was written.

    name: for example `shop.yaml:12`, or the name of a variable or flag.
    quote: the text at this place, with secrets hidden.
    """

    name: str
    quote: str = ""

    def error(self, reason: str, remedy: str) -> ConfigError:
        quoted = f"\n    {self.quote}" if self.quote else ""
        return ConfigError(f"{self.name}: {reason}{quoted}\n{remedy}")


def read_settings(text: str, name: str) -> tuple[Any, dict[Path, SettingPlace]]:
    """Return the value of a YAML text (None for an empty one), and the place of each mapping member and list item.

    name: the file's name in messages.

    Raises ConfigError.
    """
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if root is None:
            return None, {}
        reader = _SettingsReader(loader, name, text, root)
        return reader.read(root, ()), reader.places
    except yaml.MarkedYAMLError as error:
        raise _no_yaml(error, text, name) from None
    except yaml.reader.ReaderError as error:
        line, column = _line_and_column(text, error.position)
        reason = f"not YAML: the character U+{error.character:04X} can't be part of text"
        raise SettingPlace(f"{name}:{line}:{column}").error(reason, "Use a UTF-8 text file.") from None
    except RecursionError:
        raise SettingPlace(name).error("lists and mappings are nested too deeply", "Use fewer levels.") from None


def _no_yaml(error: yaml.MarkedYAMLError, text: str, name: str) -> ConfigError:
    mark, begun = error.problem_mark or error.context_mark, error.context_mark
    lines = _LINE_BREAK.split(text)
    line, column = (mark.line, mark.column) if mark else (0, 0)
    problem = str(error.problem or error.context)
    remedy = "Indent with spaces, not with tabs." if r"'\t'" in problem else "Correct the line."
    if mark is not None and mark.index >= len(text.rstrip()) and begun is not None:
        problem = problem.replace("'<stream end>'", "the end of the file")
        what = re.sub(r"^while \w+ an? ", "the ", str(error.context or "it"))
        problem += f" ({what} began at {begun.line + 1}:{begun.column + 1})"
        remedy, line_quoted = "Close it.", begun.line
    else:
        line_quoted = line
    quote = lines[line_quoted].strip() if line_quoted < len(lines) else ""
    place = SettingPlace(f"{name}:{line + 1}:{column + 1}", SECRET_IN_TEXT.sub(rf"\1: {HIDDEN}", quote[:_QUOTE_MAX]))
    return place.error(f"not YAML: {problem}", remedy)


def _line_and_column(text: str, index: int) -> tuple[int, int]:
    """Return line and column of the character at `index`. Both count from 1."""
    breaks = list(_LINE_BREAK.finditer(text, 0, index))
    return len(breaks) + 1, index - (breaks[-1].end() if breaks else 0) + 1


class _SettingsReader:
    """Converts YAML nodes to values, and records the line of each."""

    def __init__(self, loader: yaml.SafeLoader, name: str, text: str, root: yaml.Node) -> None:
        self.places: dict[Path, SettingPlace] = {}
        self._loader = loader
        self._name = name
        secrets = _Secrets(root)
        self._lines = _LINE_BREAK.split(secrets.hide_in(text))
        self._left = secrets.nodes + _EXPANDED_MAX
        self._open: set[int] = set()  # nodes that are being read
        self._members_of: dict[int, _Members] = {}

    def read(self, node: yaml.Node, path: Path) -> Any:
        self._left -= 1
        if self._left < 0:
            raise self._place(node).error(
                "its aliases expand to too many settings", "Write the settings without aliases."
            )
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        self._enter(node)
        if node.tag not in _PLAIN_TAGS:
            raise self._place(node).error(f"the tag `{_shown_tag(node)}` is not allowed here", "Leave it out.")
        value: Any
        if isinstance(node, yaml.MappingNode):
            members = self._members(node).items()
            value = {name: self._member(at, inner, (*path, name)) for name, (at, inner) in members}
        else:
            value = [self._member(item, item, (*path, at)) for at, item in enumerate(node.value)]
        self._open.discard(id(node))
        return value

    def _enter(self, node: yaml.Node) -> None:
        if id(node) in self._open:
            raise self._place(node).error(
                "an alias refers to a node that contains it", "Write the settings without aliases."
            )
        self._open.add(id(node))

    def _scalar(self, node: yaml.Node) -> Any:
        try:
            value = self._loader.construct_object(node)
        except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError):
            reason = f"`{node.value[:40]}` is not a valid `{_shown_tag(node)}`"
            raise self._place(node).error(reason, "Put it in quotes if it is text.") from None
        if isinstance(value, str) and (found := _NO_TEXT.search(value)):
            reason = f"the character U+{ord(found[0]):04X} can't be part of a setting"
            raise self._place(node).error(reason, "Leave it out.")
        return value

    def _members(self, node: yaml.MappingNode) -> _Members:
        """Return the members of a mapping. Members from merge keys (`<<: *common`) come first, and are overridden."""
        if id(node) in self._members_of:
            return self._members_of[id(node)]
        merged: _Members = {}
        own: _Members = {}
        for at, inner in node.value:
            if at.tag == _MERGE_TAG:
                for source in self._merged(inner):
                    for name, member in self._members(source).items():
                        merged.setdefault(name, member)
                continue
            name = self._scalar(at) if isinstance(at, yaml.ScalarNode) else None
            if not isinstance(name, (str, int)) or isinstance(name, bool):
                given = at.value if isinstance(at, yaml.ScalarNode) else "a list or mapping"
                raise self._place(at).error(f"`{given}` can't be a name", "Names are text or whole numbers.")
            if name in own:
                raise self._place(at).error(f"`{name}` is given twice", "Keep one of them.")
            own[name] = at, inner
        return self._members_of.setdefault(id(node), merged | own)

    def _merged(self, node: yaml.Node) -> Iterator[yaml.MappingNode]:
        for source in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            if not isinstance(source, yaml.MappingNode):
                raise self._place(source).error("`<<` needs a mapping, or a list of mappings", "Example: <<: *common")
            if id(source) not in self._members_of:
                self._enter(source)
            yield source
            self._open.discard(id(source))

    def _member(self, at: yaml.Node, node: yaml.Node, path: Path) -> Any:
        self.places[path] = self._place(at)
        return self.read(node, path)

    def _place(self, node: yaml.Node) -> SettingPlace:
        line = node.start_mark.line
        quote = self._lines[line].strip()[:_QUOTE_MAX] if line < len(self._lines) else ""
        return SettingPlace(f"{self._name}:{line + 1}", quote)


def _shown_tag(node: yaml.Node) -> str:
    return str(node.tag).replace("tag:yaml.org,2002:", "!!")


class _Secrets:
    """The places of values that must not be shown.

    nodes: number of nodes of the whole text, each counted once.
    """

    def __init__(self, root: yaml.Node) -> None:
        self._spans: set[tuple[int, int]] = set()
        self._seen: set[tuple[int, bool]] = set()
        self._find(root, False)
        self.nodes = len({node for node, _ in self._seen})

    def hide_in(self, text: str) -> str:
        """Return the text with these values replaced. Lines keep their numbers."""
        for start, end in sorted(self._spans, reverse=True):
            breaks = "".join(_LINE_BREAK.findall(text, start, end))
            text = text[:start] + HIDDEN + breaks + text[end:]
        return text

    def _find(self, node: yaml.Node, secret: bool) -> None:
        if (id(node), secret) in self._seen:
            return
        self._seen.add((id(node), secret))
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                self._find(value, secret or bool(SECRET_NAME.search(str(key.value))))
        elif isinstance(node, yaml.SequenceNode):
            for item in node.value:
                self._find(item, secret)
        elif secret:
            self._spans.add((node.start_mark.index, node.end_mark.index))
