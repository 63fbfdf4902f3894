"""Entries of `tables` that stand for many tables: they name the table of a source table's records.

Source: Java's `TableNameConverter` and `RichCdcMultiplexRecordEventParser`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final

import msgspec

from tidelake.checkpoint.routing import takes_topic
from tidelake.errors import BadInput
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.settings import PLACEHOLDER, SourceTablesSettings, TableSettings
from tidelake.storage.catalog.identifier import Identifier


class ExpandedTable(TableSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table of an entry that stands for many.

    template: the entry's `name`.
    """

    template: str

    @property
    def match_patterns(self) -> list[str]:
        """The settings that decide which records belong to the table. With others it is regarded as another table."""
        of = self.source_tables or SourceTablesSettings()
        dbs = [text for text in (of.including_dbs, of.excluding_dbs, of.topic_parts) if text not in (None, ".*")]
        return [*TableSettings.match_patterns.fget(self), self.template, *dbs]  # type: ignore[attr-defined]

    def fitted(self, columns: Collection[str]) -> ExpandedTable:
        """Return the settings for a table with these columns.

        If the table lacks a column of the key or the partitions, the whole setting is left out, as in Paimon.
        """
        keys, partitions = (
            names if set(names) <= set(columns) else [] for names in (self.primary_key, self.partition_by)
        )
        return msgspec.structs.replace(self, primary_key=keys, partition_by=partitions)


_OF_SOURCE: Final = frozenset({"table", "schema", "database"})  # placeholders that records may lack


class TableTemplate:
    """One entry that stands for many tables."""

    def __init__(self, entry: TableSettings) -> None:
        self.entry = entry
        self._of = entry.source_tables or SourceTablesSettings()
        self._database, _, self._table = entry.name.partition(".")
        self._mapping = {name.lower(): target for name, target in self._of.mapping.items()}
        self._prefixes = {db.lower(): text for db, text in self._of.prefix_of_db.items()}
        self._suffixes = {db.lower(): text for db, text in self._of.suffix_of_db.items()}
        self._topic_parts = None if self._of.topic_parts is None else re.compile(self._of.topic_parts)
        names = set(PLACEHOLDER.findall(self._table))
        self._needs_table = "topic" not in names and not names.isdisjoint(_OF_SOURCE)
        self._spellings: dict[str, SourceTable] = {}  # name in lower case to its source table

    def table_for(self, source: SourceTable) -> ExpandedTable | None:
        """Return the table of a source table's records; None if the entry doesn't include them.

        Raises BadInput for a name that no table can have.
        """
        if not self._matches(source):
            return None
        name = f"{self._database}.{self._name_of(source)}"
        self._check_spelling(name, source)
        try:
            is_plain = (identifier := Identifier.parse(name)).is_plain and identifier.full_name == name
            reason = "" if is_plain else "it contains a $"
        except BadInput as error:
            reason = str(error)
        if reason:
            raise BadInput(
                f"the records of {source} would be written to {name!r}, which can't be the name of a table: {reason}. "
                f"Give the table another name (`source_tables: {{mapping: {{{source.table}: …}}}}` of "
                f"{self.entry.name}), or exclude it (`excluding_tables`)"
            )
        return self._expanded(name, self._of.partition_by.get(source.table or ""))

    def table_named(self, name: str) -> ExpandedTable | None:
        """Return the existing table of this name; None if no table of this entry can have the name."""
        database, _, table = name.partition(".")
        if database != self._database or not self._names.fullmatch(table):
            return None
        found = [columns for source, columns in self._of.partition_by.items() if table == self._default_name(source)]
        return self._expanded(name, found[0] if found else None)

    def would_name(self, source: SourceTable) -> str | None:
        """Return the name that a table of this source table gets if the entry includes it; None if it can't get one."""
        try:
            return f"{self._database}.{self._name_of(source)}"
        except BadInput:
            return None

    def source_names(self, name: str) -> list[str]:
        """Return the names that a source table of the table `name` may have, without database and schema.

        The list is empty if they can't be told from the name: it may have another case, or contain other names.
        """
        of, (database, _, table) = self._of, name.partition(".")
        if database != self._database or of.lower_case or not of.merge_shards or table in of.mapping.values():
            return []
        if PLACEHOLDER.findall(self._table) != ["table"]:
            return []
        before, _, after = self._table.partition("{table}")
        prefixes, suffixes = {before, *of.prefix_of_db.values()}, {after, *of.suffix_of_db.values()}
        return [
            table[len(prefix) : len(table) - len(suffix)]
            for prefix in sorted(prefixes)
            for suffix in sorted(suffixes)
            if table.startswith(prefix) and table.endswith(suffix) and len(table) > len(prefix) + len(suffix)
        ]

    def may_include(self, source: SourceTable, topics: Collection[str] | None) -> bool:
        """Return whether the entry could include a source table. A database that is None is regarded as included.

        topics: the topics that may have its records, in place of the source table's own; None or empty: any.
        """
        if topics:
            of_topics = [replace(source, topic=topic) for topic in topics if self.takes_topic(topic)]
            if not any(self._matches_patterns(one) for one in of_topics):
                return False
        elif self.entry.match is None and not self._matches_patterns(source):
            return False  # with patterns, the topic might match
        return self._includes_table(source) and (source.database is None or self._includes_database(source))

    def takes_topic(self, topic: str) -> bool:
        return takes_topic(self.entry.topic_patterns, topic)

    def _matches(self, source: SourceTable) -> bool:
        if (self._needs_table and source.table is None) or not self.takes_topic(source.topic):
            return False
        if self._topic_parts is not None and self._topic_parts.fullmatch(source.topic) is None:
            return False
        return self._matches_patterns(source) and self._includes_table(source) and self._includes_database(source)

    def _matches_patterns(self, source: SourceTable) -> bool:
        return not source.is_shadow and any(source.matches(pattern) for pattern in self.entry.match_patterns)

    def _includes_table(self, source: SourceTable) -> bool:
        return _matches_patterns(source.table, self._of.including_tables, self._of.excluding_tables)

    def _includes_database(self, source: SourceTable) -> bool:
        return _matches_patterns(source.database, self._of.including_dbs, self._of.excluding_dbs)

    def _name_of(self, source: SourceTable) -> str:
        if source.table is None:
            return PLACEHOLDER.sub(lambda found: self._part(found[1], source, ""), self._table)
        table = source.table if self._of.merge_shards else f"{self._part('database', source, '')}_{source.table}"
        if (mapped := self._mapping.get(table.lower())) is not None:
            return mapped
        template = self._table
        database = (source.database or "").lower()
        if database in self._prefixes or database in self._suffixes:
            before, _, after = template.partition("{table}")
            template = f"{self._prefixes.get(database, before)}{{table}}{self._suffixes.get(database, after)}"
        return PLACEHOLDER.sub(lambda found: self._part(found[1], source, table), template)

    def _check_spelling(self, name: str, source: SourceTable) -> None:
        """Raise BadInput for two tables of one database whose names differ only in case."""
        if not self._of.lower_case:
            return
        other = self._spellings.setdefault(f"{name} of {source.database}.{source.schema}", source)
        if other.table != source.table and (other.table or "").lower() == (source.table or "").lower():
            raise BadInput(
                f"the records of {other} and of {source} would both be written to {name}, as names become lower case: "
                f"rename one of them at the source, or exclude it (`excluding_tables` of {self.entry.name})"
            )

    def _part(self, placeholder: str, source: SourceTable, table: str) -> str:
        parts = {"table": table, "schema": source.schema, "database": source.database, "topic": source.topic}
        if self._topic_parts is not None and (found := self._topic_parts.fullmatch(source.topic)) is not None:
            parts |= found.groupdict()
        part = parts.get(placeholder)
        if not part:
            raise BadInput(
                f"{self.entry.name} can't form the table name for {source}: its records have no {placeholder}. Leave "
                f"{{{placeholder}}} out of "
                f"`name`{' and do not change `merge_shards`' if not self._of.merge_shards else ''}"
            )
        return part.lower() if self._of.lower_case else part

    def _default_name(self, table: str) -> str:
        shown = table.lower() if self._of.lower_case else table
        return self._mapping.get(table.lower(), self._table.replace("{table}", shown))

    @cached_property
    def _names(self) -> re.Pattern[str]:
        before, _, after = self._table.partition("{table}")
        prefixes = [before, *self._of.prefix_of_db.values()]
        suffixes = [after, *self._of.suffix_of_db.values()]
        templates = [f"{one}{{table}}{other}" for one in prefixes for other in suffixes]
        if "{table}" not in self._table:
            templates = [self._table]
        patterns = [".+".join(map(re.escape, PLACEHOLDER.split(text)[::2])) for text in templates]
        return re.compile("|".join([*patterns, *map(re.escape, self._of.mapping.values())]), re.DOTALL)

    def _expanded(self, name: str, partition_by: list[str] | None) -> ExpandedTable:
        given = {field: getattr(self.entry, field) for field in TableSettings.__struct_fields__}
        partitions = self.entry.partition_by if partition_by is None else partition_by
        return ExpandedTable(**{**given, "name": name, "partition_by": partitions}, template=self.entry.name)


class TableTemplates:
    """All such entries of a pipeline, in order. The first entry that includes a record names its table."""

    def __init__(self, entries: Sequence[TableSettings] = ()) -> None:
        self._templates = [TableTemplate(entry) for entry in entries if entry.is_template]

    def __bool__(self) -> bool:
        return bool(self._templates)

    @property
    def databases(self) -> set[str]:
        return {template.entry.name.partition(".")[0] for template in self._templates}

    def table_for(self, source: SourceTable) -> ExpandedTable | None:
        """Return the table of a source table's records; None if no entry includes them.

        Raises BadInput for a name that no table can have.
        """
        found = (template.table_for(source) for template in self._templates)
        return next((table for table in found if table is not None), None)

    @property
    def entries(self) -> Sequence[TableTemplate]:
        return self._templates

    def take_topic(self, topic: str) -> bool:
        return any(template.takes_topic(topic) for template in self._templates)


def _matches_patterns(name: str | None, including: str, excluding: str | None) -> bool:
    if name is None:
        return including == ".*"
    return re.fullmatch(including, name) is not None and (excluding is None or re.fullmatch(excluding, name) is None)
