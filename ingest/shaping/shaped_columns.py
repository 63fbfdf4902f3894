"""What one table takes of the records of its source: columns, their names, their masks, and the rows of a filter.

`keep_columns`, `drop_columns` and the left side of `rename_columns` are names of the records. All other settings, also
`masks` and `filter`, have the names of the table.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import pyarrow as pa

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.ingest.formats.base import InferredTable
from tidelake.ingest.secrets import Secret
from tidelake.ingest.settings import TableSettings
from tidelake.ingest.shaping.column_masks import ColumnMask
from tidelake.storage.model.messages import add_column, alter_command, did_you_mean, drop_column
from tidelake.storage.model.options import ChangelogProducer, MergeEngine
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import STRING
from tidelake.storage.read.condition_text import parse_condition
from tidelake.storage.read.conditions import as_predicate


@dataclass(frozen=True)
class ShapedColumns:
    """The shape of one table.

    kept: columns of the records to take; None: all.
    dropped: columns of the records to leave out.
    renamed: column of the records to its name in the table.
    masks: column of the table to its mask.
    filter: a condition as SQL text, which all rows of the table meet; None: all rows.
    salt: the key of hashes.
    is_template: whether the shape is for many tables, some of which may lack a column.
    has_other_key: whether a new table does not get the key of the records, so that its columns may be left out.
    """

    kept: frozenset[str] | None = None
    dropped: frozenset[str] = frozenset()
    renamed: Mapping[str, str] = field(default_factory=dict)
    masks: Mapping[str, ColumnMask] = field(default_factory=dict)
    filter: str | None = None
    salt: Secret | None = None
    is_template: bool = False
    has_other_key: bool = False

    @classmethod
    def of(cls, table: TableSettings, salt: Secret | None, *, is_template: bool = False) -> Self:
        """Return the shape that the settings of a table configure. Raises BadInput for settings that make no sense."""
        kept, dropped = frozenset(table.keep_columns), frozenset(table.drop_columns)
        if both := sorted(kept & dropped):
            raise BadInput(f"column {both[0]} is in `keep_columns` and in `drop_columns`: take it out of one of them")
        targets = list(table.rename_columns.values())
        if twice := [name for name in targets if targets.count(name) > 1]:
            raise BadInput(f"two columns are renamed to {twice[0]}: choose another name for one of them")
        left_out = {name for name in table.rename_columns if name in dropped or (kept and name not in kept)}
        if lost := sorted(left_out):
            raise BadInput(f"column {lost[0]} is renamed, but left out: take it out of `rename_columns`")
        if moved := sorted(table.rename_columns.keys() & set(table.key_columns)):
            raise BadInput(f"column {moved[0]} is in `key_columns`, so it can't be renamed")
        masks = {name: ColumnMask.parse(name, text) for name, text in table.masks.items()}
        if (hashed := [name for name, mask in masks.items() if mask.function == "hash"]) and salt is None:
            raise BadInput(
                f"column {hashed[0]} is hashed, but `mask_salt` is not set. Without a salt, hashes of known values "
                "could be compared. Set TIDELAKE_MASK_SALT, and never change it: the hashes of all values would change"
            )
        if table.filter is not None:
            parse_condition(table.filter)
        return cls(
            kept or None,
            dropped,
            dict(table.rename_columns),
            masks,
            table.filter,
            salt,
            is_template,
            bool(table.primary_key) or not table.takes_key_of_records,
        )

    def __bool__(self) -> bool:
        return bool(self.kept is not None or self.dropped or self.renamed or self.masks or self.filter is not None)

    def __str__(self) -> str:
        """Return the text that `plan` prints: `without note; email is masked: hash; rows where n > 3`."""
        parts = []
        if self.kept is not None:
            parts.append(f"only {', '.join(sorted(self.kept))}")
        if self.dropped:
            parts.append(f"without {', '.join(sorted(self.dropped))}")
        parts += [f"{old} is named {new}" for old, new in self.renamed.items()]
        parts += [f"{name} is masked: {mask}" for name, mask in self.masks.items()]
        if self.filter is not None:
            parts.append(f"rows where {self.filter}")
        return "; ".join(parts)

    def takes(self, name: str) -> bool:
        """Return whether the table takes this column of the records."""
        return name not in self.dropped and (self.kept is None or name in self.kept)

    def table_name(self, name: str) -> str:
        """Return the table's name for a column of the records."""
        return self.renamed.get(name, name)

    def source_name(self, name: str) -> str:
        """Return the records' name for a column of the table."""
        return self._sources.get(name, name)

    @cached_property
    def _sources(self) -> Mapping[str, str]:
        return {new: old for old, new in self.renamed.items()}

    def inferred(self, found: InferredTable) -> InferredTable:
        """Return the columns and the key of a new table.

        Raises BadInput for a key without one of its columns, and for two columns of one name.
        """
        lost = [name for name in found.primary_key if not self.takes(name)]
        if lost and not self.has_other_key:
            raise BadInput(
                f"column {lost[0]} is part of the records' key, so it can't be left out. Take it into the table, or "
                "set `primary_key`"
            )
        fields = [replace(f, name=self.table_name(f.name)) for f in found.fields if self.takes(f.name)]
        names = [f.name for f in fields]
        if twice := [name for name in names if names.count(name) > 1]:
            raise BadInput(f"two columns would be named {twice[0]}: correct `rename_columns`")
        return replace(
            found,
            fields=tuple(replace(f, id=number) for number, f in enumerate(fields)),
            primary_key=tuple(self.table_name(name) for name in found.primary_key if name not in lost),
            sources={self.table_name(name): source for name, source in found.sources.items() if self.takes(name)},
            key_error="it doesn't fit" if found.key_error and self.masks else found.key_error,  # it may quote a value
        )

    def check(self, table: TableContext, made: Collection[str]) -> None:
        """Check the shape against the table.

        made: columns of the table that are not columns of the records' rows: derived ones, and those of their keys.

        Raises BadInput or UnsupportedFeature if the table can't have the shape.
        """
        schema, name = table.schema, table.name
        there = [f.name for f in schema.fields if f.name not in made and not self.takes(self.source_name(f.name))]
        if there:
            raise BadInput(
                f"{name} has the column {there[0]}, which `keep_columns` or `drop_columns` leaves out: drop it with "
                f"`{alter_command(name, table.location, drop_column(there[0]))}`, or take it into the table"
            )
        absent = [column for column in self.masks if column not in schema.by_name]
        if absent and not self.is_template:
            raise BadInput(
                f"{name} lacks the column {absent[0]}, which `masks` names{did_you_mean(absent[0], schema.names)}. "
                "Correct the name; take it out of `masks` if the source has dropped the column; or add the column: "
                f"with `columns: {{{absent[0]}: STRING}}` to a new table, with "
                f"`{alter_command(name, table.location, add_column(absent[0], STRING))}` to this one"
            )
        for column, mask in self.masks.items():
            if column in schema.by_name:
                _check_mask(column, mask, table)
        if self.filter is not None:
            _check_filter(self.filter, table, made)


def _check_mask(column: str, mask: ColumnMask, table: TableContext) -> None:
    mask.check(column, table.schema.by_name[column].type)
    if column in table.schema.primary_keys and not mask.distinguishes:
        raise BadInput(f"column {column} is part of the key of {table.name}, and {mask} would merge rows. Use hash")
    if column in table.options.sequence_fields:
        raise BadInput(
            f"column {column} of {table.name} decides which row is the newest (`sequence.field`), so it can't be masked"
        )


def _check_filter(text: str, table: TableContext, made: Collection[str]) -> None:
    columns = [name for name in table.schema.names if name not in made]
    known = set(columns)
    condition = as_predicate(text, pa.schema([f for f in table.schema.arrow if f.name in known]))
    if absent := sorted(condition.columns - known):
        raise BadInput(
            f"the `filter` of {table.name} names {absent[0]}, which is not a column of its records"
            f"{did_you_mean(absent[0], columns)}. Correct the name, or add the column: with `columns` to a new table, "
            f"with `{alter_command(table.name, table.location, add_column(absent[0], STRING))}` to this one"
        )
    condition.expression(table.schema.arrow)  # raises BadInput for a value that no value of the column can be
    options = table.options
    deletes = options.merge_engine is MergeEngine.DEDUPLICATE and not options.ignore_delete
    if table.schema.has_primary_key and not (deletes and options.changelog_producer is not ChangelogProducer.INPUT):
        raise UnsupportedFeature(
            f"`filter` of {table.name}",
            "a row that stops matching must be deleted by its key alone, which the table doesn't allow",
            "Use `merge-engine: deduplicate`, another `changelog-producer` than input, and no `ignore-delete`, or "
            "leave `filter` out",
        )
