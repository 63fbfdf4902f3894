"""Finds the tables that sampled topics would feed: format, names, columns and key of each."""

from __future__ import annotations

import glob
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tidelake.errors import BadInput
from tidelake.ingest.formats.base import DecodedBatch, OpenedFormat, Skipped
from tidelake.ingest.formats.recognition import Recognizer
from tidelake.ingest.formats.registry import open_format
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.formats.values.json_text import BadValue, JsonKind, kind_of, read_object, read_text
from tidelake.ingest.proposal.topic_samples import TopicSample
from tidelake.ingest.raw_batch import RawBatch
from tidelake.storage.model.types import STRING, not_null

DEFAULT_DATABASE: Final = "default"  # as in Paimon

ROW_FORMATS: Final = ("json", "avro", "csv")
"""Formats whose records are rows without an operation."""

_MAY_ALSO_BE: Final = {"json": ("debezium-flattened-json", "csv"), "avro": ("debezium-flattened-avro",)}
_NOT_IN_NAMES: Final = re.compile(r"[\s.\\/{}$@#\x00-\x1f\x7f]+")
_SHOWN: Final = 60  # bytes of a record that is not recognized
_KEPT_KINDS: Final = (Skipped.TOMBSTONE, Skipped.UNROUTED)


@dataclass(slots=True)
class RecognizedTopic:
    """What the records of a topic look like.

    formats: format to number of records, without control records. None stands for what is not recognized.
    needs_registry: whether records refer to schemas in a registry.
    example: the beginning of a record that is not recognized; "" if there is none.
    """

    topic: str
    formats: Counter[str | None] = field(default_factory=Counter)
    needs_registry: bool = False
    example: str = ""

    @property
    def format(self) -> str | None:
        """The format of most records; None if there is none, or it is not recognized."""
        return self.formats.most_common(1)[0][0] if self.formats else None


def recognize(sample: TopicSample, recognizer: Recognizer) -> RecognizedTopic:
    """Return what the records of a sample look like. Raises RegistryUnavailable."""
    found = RecognizedTopic(sample.topic)
    for raw in sample.batches:
        for row, value in enumerate(raw.values.to_pylist()):
            if value is None:
                continue
            one = recognizer.recognize(value, raw.headers.get(row, ()))
            found.needs_registry |= one.needs_registry
            if one.is_control:
                continue
            found.formats[one.format] += 1
            if one.format is None and not found.example:
                found.example = value[:_SHOWN].decode("utf-8", "backslashreplace")
    return found


@dataclass(slots=True)
class ProposedTable:
    """An entry of `tables`.

    name: `database.table`.
    match: a pattern that matches only the source table, or the topic, whose records it takes.
    topics: the topics with its records.
    records: number of sampled records.
    columns: column name to type, as the table would be created; empty if no record shows them.
    declares_types: whether the records declare the types of their columns. Otherwise columns become STRING.
    key: the columns of the key that the records name.
    primary_key: the columns of the key that the entry must name, as the format's records name none.
    seen_types: if no types are declared: column name to a type that holds the sampled values.
    notes: what a person should know.
    """

    name: str
    match: str
    topics: list[str]
    records: int = 0
    columns: dict[str, str] = field(default_factory=dict)
    declares_types: bool = False
    key: tuple[str, ...] = ()
    primary_key: tuple[str, ...] = ()
    seen_types: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ProposedTables:
    """The entries, and why topics have none.

    empty: entries for topics without records, which may get records of any format.
    left_out: topic to reason.
    """

    tables: list[ProposedTable] = field(default_factory=list)
    empty: list[ProposedTable] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)


def propose_tables(
    samples: Iterable[TopicSample],
    recognized: Mapping[str, RecognizedTopic],
    format_: str,
    format_options: Mapping[str, Any],
    database: str | None,
) -> ProposedTables:
    """Return the entries for sampled topics.

    recognized: by topic.
    format_: the format of the configuration. Topics of another one are left out.
    database: the database of all tables; None: the source's, else that of a topic `database.table`.

    Raises UnsupportedFeature for an unknown format, BadInput for its options, and RegistryUnavailable.
    """
    opened = open_format(format_, format_options)
    found = ProposedTables()
    by_source: dict[tuple[str | None, ...], tuple[SourceTable, ProposedTable]] = {}
    for sample in samples:
        like = recognized[sample.topic]
        if not sample.records:
            found.empty.append(_empty_entry(sample, database))
        elif like.format not in (None, format_) and format_ not in _MAY_ALSO_BE.get(like.format, ()):
            found.left_out[sample.topic] = f"its records look like {like.format}"
        else:
            found.left_out.update(_add_topic(by_source, sample, like, opened, database))
    found.tables = [table for _, table in by_source.values()]
    _separate_names([*by_source.values()], found.empty)
    return found


def _empty_entry(sample: TopicSample, database: str | None) -> ProposedTable:
    note = "none of its newest records is left" if sample.has_records else "it has no records yet"
    entry = ProposedTable("", sample.topic, [sample.topic], notes=[note])
    entry.name = _name(SourceTable(sample.topic), database, 0)
    return entry


def _add_topic(
    by_source: dict[tuple[str | None, ...], tuple[SourceTable, ProposedTable]],
    sample: TopicSample,
    like: RecognizedTopic,
    opened: OpenedFormat,
    database: str | None,
) -> dict[str, str]:
    """Add the tables of a topic. Returns the topic with a reason if it has none."""
    decoder = opened.decoder(lambda _: None)
    skipped: Counter[Skipped] = Counter()
    reason, is_fed = "", False
    for raw in sample.batches:
        decoded = decoder.decode(raw)
        skipped.update(decoded.skipped)
        reason = reason or (decoded.failures[0].describe(raw) if decoded.failures else "")
        for source, records in decoded.unrouted_records.items():
            if source.is_shadow:
                reason = reason or f"{source} is a working table of an online schema change"
                continue
            is_fed = True
            parts = (source.database, source.schema, source.table) if source.table else (source.topic,)
            _, table = by_source.setdefault(parts, (source, ProposedTable("", glob.escape(str(source)), [])))
            if sample.topic not in table.topics:
                table.topics.append(sample.topic)
            table.name = _name(source, database, 0)
            table.records += records
            if not table.columns:
                _describe(table, opened, raw, decoded, source)
    if is_fed:
        for table in (table for _, table in by_source.values() if sample.topic in table.topics):
            _add_notes(table, like, skipped, reason, opened)
        return {}
    if reason:
        return {sample.topic: reason}
    if like.format is None and like.example:
        return {sample.topic: f"no format is recognized; a record begins with {like.example}"}
    kinds = ", ".join(f"{kind}s" for kind in skipped if kind not in _KEPT_KINDS) or "tombstones"
    return {sample.topic: f"it has only {kinds}"}


def _describe(
    table: ProposedTable, opened: OpenedFormat, raw: RawBatch, decoded: DecodedBatch, source: SourceTable
) -> None:
    """Fill in columns and key, from the first record that can create the table. Sampled deletes can't."""
    row = decoded.creating.get(source)
    if row is None:
        return
    try:
        inferred = opened.infer_table(raw, row)
    except BadInput as error:
        table.notes.append(str(error))
        return
    table.columns = {one.name: str(one.type) for one in inferred.fields}
    table.key = inferred.primary_key
    strings = {STRING, not_null(STRING)}
    table.declares_types = any(one.type not in strings for one in inferred.fields)
    if inferred.outside:
        outside = ", ".join(inferred.outside)
        table.notes.append(f"the records' keys also have {outside}: name it in key_columns, or set key_from_records")
    if inferred.key_error:
        table.notes.append(f"the key of its records can't be read: {inferred.key_error}")
    if not table.key and not inferred.key_error:
        table.primary_key = _key_in_row(raw, row)
    if not table.declares_types:
        table.seen_types = _seen_types(raw, table.columns)


def _key_in_row(raw: RawBatch, row: int) -> tuple[str, ...]:
    """Return the columns of a JSON row that make up the record's key: those it names, or the one with its value."""
    key, value = raw.keys[row].as_py(), raw.values[row].as_py()
    if not key or not value:
        return ()
    try:
        members = read_object(value)
    except BadValue:
        return ()
    try:
        named = tuple(read_object(key))
    except BadValue:
        named = ()
    if named:
        return named if set(named) <= members.keys() else ()
    text = key.decode("utf-8", "replace")
    equal = [name for name, one in members.items() if text in (_plain(one), one.decode("utf-8", "replace"))]
    return tuple(equal) if len(equal) == 1 else ()


def _plain(raw: bytes) -> str | None:
    try:
        return read_text(raw) if kind_of(raw) is JsonKind.TEXT else None
    except BadValue:
        return None


def _seen_types(raw: RawBatch, columns: Iterable[str]) -> dict[str, str]:
    """Return types that hold the values of a batch's rows, for columns of which not all values are texts."""
    found: dict[str, set[str]] = {}
    for value in raw.values.to_pylist():
        for name, one in _row_members(value).items():
            if kind_of(one) is not JsonKind.NULL:
                found.setdefault(name, set()).add(_type_of(one))
    types = {}
    for name in columns:
        seen = found.get(name, set())
        if seen == {"BIGINT", "DOUBLE"}:
            seen = {"DOUBLE"}
        if len(seen) == 1 and seen != {"STRING"}:
            (types[name],) = seen
    return types


def _row_members(value: bytes | None) -> dict[str, bytes]:
    """Return the members of a record's new row: those of `after`, `data` or the record itself."""
    try:
        members = read_object(value or b"")
        for image in ("after", "data"):
            if image in members and kind_of(members[image]) is JsonKind.OBJECT:
                return read_object(members[image])
    except BadValue:
        return {}
    return members


def _type_of(raw: bytes) -> str:
    match kind_of(raw):
        case JsonKind.BOOLEAN:
            return "BOOLEAN"
        case JsonKind.NUMBER:
            is_whole = re.fullmatch(rb"-?\d{1,18}", raw) is not None
            return "BIGINT" if is_whole else "DOUBLE"
        case _:
            return "STRING"


def _add_notes(
    table: ProposedTable, like: RecognizedTopic, skipped: Mapping[Skipped, int], reason: str, opened: OpenedFormat
) -> None:
    name = getattr(opened, "NAME", "")
    others = {of: count for of, count in like.formats.items() if of not in (None, name, like.format)}
    if others:
        listed = ", ".join(f"{count} look like {of}" for of, count in others.items())
        table.notes.append(f"not all records have this format: {listed}")
    if reason:
        table.notes.append(f"a record can't be read: {reason}")
    if name in ROW_FORMATS and skipped.get(Skipped.TOMBSTONE):
        table.notes.append(
            f"{skipped[Skipped.TOMBSTONE]} records are tombstones, which {name} skips. If they delete rows, the format "
            f"is debezium-flattened-{'avro' if name == 'avro' else 'json'}"
        )


# ---------------------------------------------------------------- names


def _name(source: SourceTable, database: str | None, level: int) -> str:
    """Return a table's name. level: 0 for the shortest; each further one tells more tables apart."""
    if source.table is None:
        before, _, last = source.topic.rpartition(".")
        of_topic = before.rpartition(".")[2]
        table = last if level == 0 else source.topic
        return f"{_part(database or of_topic or DEFAULT_DATABASE)}.{_part(table)}"
    qualifiers = [part for part in (source.database, source.schema) if part]
    shown = [*qualifiers[max(0, len(qualifiers) - level) :], source.table] if level else [source.table]
    return f"{_part(database or source.database or source.schema or DEFAULT_DATABASE)}.{_part('_'.join(shown))}"


def _part(text: str) -> str:
    part = _NOT_IN_NAMES.sub("_", text.strip()) or "_"
    return f"{part}_" if part == "sys" else part  # the database `sys` is Paimon's


def _separate_names(named: Sequence[tuple[SourceTable, ProposedTable]], others: Sequence[ProposedTable]) -> None:
    """Give tables of one name longer names, up to a number at the end. Names that differ only in case are equal."""
    entries = [*named, *((SourceTable(one.topics[0]), one) for one in others)]
    for level in (1, 2):
        counts = Counter(table.name.lower() for _, table in entries)
        for source, table in entries:
            if counts[table.name.lower()] > 1:
                table.name = _name(source, table.name.partition(".")[0], level)
    taken: set[str] = set()
    for _, table in entries:
        name, number = table.name, 1
        while table.name.lower() in taken:
            number += 1
            table.name = f"{name}_{number}"
        taken.add(table.name.lower())
