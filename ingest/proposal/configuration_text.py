"""Writes a proposed configuration as YAML with comments."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from tidelake.ingest.proposal.proposed_tables import ROW_FORMATS, ProposedTable, ProposedTables
from tidelake.ingest.secrets import SECRET_NAME

_WIDTH: Final = 110
_VARIABLE_PARTS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_")  # of settings that a variable can name
_COLUMNS_SHOWN: Final = 40
_PLAIN: Final = re.compile(r"[\w/][\w./:@-]*(?: [\w./@-]+)*")


@dataclass(frozen=True, slots=True)
class ProposedConfiguration:
    """What the text says.

    path: where it will be, for the commands in comments.
    others: other settings, nested as in a configuration. Values of secrets are not written.
    sample: number of records of each topic that were read.
    """

    path: str
    pipeline: str
    warehouse: str
    brokers: Sequence[str]
    topics: Sequence[str]
    format: str
    tables: ProposedTables
    others: Mapping[str, Any] = field(default_factory=dict)
    sample: int = 0


def configuration_text(proposed: ProposedConfiguration) -> str:
    return "".join(f"{line}\n" for line in _lines(proposed))


def _lines(proposed: ProposedConfiguration) -> Iterator[str]:
    others = {name: value for name, value in proposed.others.items() if name not in ("source", "format_options")}
    path = shlex.quote(proposed.path)
    yield from _comment(
        f"Written by `tidelake init` from the newest {proposed.sample:,} records of each topic. It is yours to edit: "
        f"`tidelake ingest plan {path}` checks it and shows what a start would do, and `tidelake ingest run "
        f"{path}` starts it. `tidelake help configuration` has all settings."
    )
    yield ""
    yield f"pipeline: {scalar(proposed.pipeline)}  # the tables keep their position under this name: never change it"
    yield f"warehouse: {scalar(proposed.warehouse)}  # a folder, or an address such as s3://bucket/lake"
    yield "source:"
    yield "  type: kafka"
    (first, *more) = proposed.brokers
    yield f"  bootstrap_servers: {_flow(proposed.brokers) if more else scalar(first)}"
    yield "  topics:"
    for topic in proposed.topics:
        yield f"    - {scalar(topic)}"
    yield "  # start: latest  # where the first start begins; default: earliest, the oldest record that a topic has"
    yield from _settings(proposed.others.get("source", {}), ("source",))
    yield f"format: {scalar(proposed.format)}  # of all topics; another format needs a pipeline of its own"
    if given := proposed.others.get("format_options", {}):
        yield from _settings({"format_options": given}, ())
    yield "tables:"
    for number, table in enumerate(proposed.tables.tables):
        yield from [""] * bool(number)
        yield from _entry(table, proposed.format)
    for table in proposed.tables.empty:
        yield ""
        yield from _empty_entry(table)
    if others:
        yield ""
        yield from _settings(others, ())
    if proposed.tables.left_out:
        yield ""
        yield "# Topics without an entry:"
        for topic, reason in proposed.tables.left_out.items():
            yield from _comment(f"{topic}: {reason}", "", hanging="  ")


def _entry(table: ProposedTable, format_: str) -> Iterator[str]:
    topics = "topics" if len(table.topics) > 1 else "topic"
    records = "1 sampled record" if table.records == 1 else f"{table.records:,} sampled records"
    yield from _comment(f"{records} of the {topics} {', '.join(table.topics)}.", "  ")
    if table.columns:
        typed = {name: f"{name} {type_}" if table.declares_types else name for name, type_ in table.columns.items()}
        shown = [*typed.values()][:_COLUMNS_SHOWN]
        rest = f", and {len(table.columns) - _COLUMNS_SHOWN} more" if len(table.columns) > _COLUMNS_SHOWN else ""
        yield from _comment(f"Columns: {', '.join(shown)}{rest}.", "  ")
    yield from _comment(_key_text(table, format_), "  ")
    for note in table.notes:
        yield from _comment(f"Note: {note}.", "  ")
    yield f"  - name: {scalar(table.name)}"
    yield f"    match: {scalar(table.match)}"
    yield f"    topics: {_flow(table.topics) if len(table.topics) > 1 else scalar(table.topics[0])}"
    if table.primary_key:
        yield f"    primary_key: {_flow(table.primary_key)}"
    if table.seen_types:
        yield from _comment(
            "The records declare no types, so new columns are STRING. To have others, correct this line and "
            "uncomment it before the first start. It holds the sampled values; a number may also be a date or a time.",
            "    ",
        )
        yield f"    # columns: {_flow_mapping(table.seen_types)}"
    has_key = bool(table.key or table.primary_key)
    options = "{bucket: 4, changelog-producer: input}" if has_key else "{bucket: -1}"
    yield f"    # options: {options}  # of the table, if it is created"


def _key_text(table: ProposedTable, format_: str) -> str:
    if table.key:
        return f"Key: {', '.join(table.key)}, which the records name."
    if table.primary_key:
        return (
            f"Key: {', '.join(table.primary_key)}, as in the keys of the records. Check it: it is a guess, and records "
            "with one key become one row."
        )
    if not table.columns:
        return "Columns and key are unknown: no sampled record shows them."
    if format_ in ROW_FORMATS:
        return "No key: each record adds a row. `primary_key: [id]` would make records with one id one row."
    return "No key: inserts add rows, and an update or a delete is refused. `primary_key: [id]` names a key."


def _empty_entry(table: ProposedTable) -> Iterator[str]:
    yield from _comment(
        f"Topic {table.topics[0]}: {table.notes[0]}. Uncomment this, and add it to `source.topics`, if its records "
        "will have this format.",
        "  ",
    )
    yield f"  # - name: {scalar(table.name)}"
    yield f"  #   match: {scalar(table.match)}"


def _settings(values: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """Yield settings in block style. For a secret, yield a comment that says where to set it."""
    indent = "  " * len(path)
    for name, value in values.items():
        here = (*path, name)
        if SECRET_NAME.search(name):
            yield from _comment(f"{name}: a secret, which is not written here. {_secret_remedy(here)}", indent)
        elif isinstance(value, Mapping):
            inner = [*_settings(value, here)]
            is_empty = all(line.lstrip().startswith("#") for line in inner)  # a mapping of comments would be null
            yield from (line.removeprefix("  ") for line in inner) if is_empty else (f"{indent}{scalar(name)}:", *inner)
        else:
            yield f"{indent}{scalar(name)}: {_flow(value) if isinstance(value, list) else scalar(value)}"


def _secret_remedy(path: tuple[str, ...]) -> str:
    if all(set(part) <= _VARIABLE_PARTS for part in path):
        return f"Set the variable TIDELAKE_{'__'.join(path).upper()}."
    return f"Set the variable TIDELAKE_{path[0].upper()}, which replaces this section as a whole."


def _comment(text: str, indent: str = "", hanging: str = "") -> list[str]:
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return textwrap.wrap(
        shown,
        _WIDTH,
        initial_indent=f"{indent}# ",
        subsequent_indent=f"{indent}# {hanging}",
        break_long_words=False,
        break_on_hyphens=False,
    )


# ---------------------------------------------------------------- values


def scalar(value: Any) -> str:
    """Return a value as YAML on one line, quoted if it could be read as something else, also in a list or mapping."""
    if not isinstance(value, str):
        return _dumped(value)
    is_plain = _PLAIN.fullmatch(value) is not None and _dumped(value) == value
    return value if is_plain else _dumped(value, default_style='"')


def _dumped(value: Any, **style: Any) -> str:
    text: str = yaml.safe_dump(value, allow_unicode=True, width=float("inf"), default_flow_style=True, **style)
    return text.removesuffix("\n").removesuffix("\n...")


def _flow(values: Sequence[Any]) -> str:
    return f"[{', '.join(map(scalar, values))}]"


def _flow_mapping(values: Mapping[str, str]) -> str:
    return f"{{{', '.join(f'{scalar(name)}: {scalar(value)}' for name, value in values.items())}}}"
