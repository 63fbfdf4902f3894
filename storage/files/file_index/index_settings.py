"""The indexes of a table's columns: options `file-index.<kind>.columns` and `file-index.<kind>.<column>.…`.

For a MAP with text keys, `m[key]` means the values of that key. Options of `m` apply to all its keys.

Source: Java `fileindex/FileIndexOptions.java`, `schema/SchemaValidation.java` (validateFileIndex).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from tidelake.errors import BadInput
from tidelake.storage.files.file_index.column_index import IndexWriter
from tidelake.storage.files.file_index.kinds import KINDS
from tidelake.storage.model.messages import did_you_mean
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.options.values import parse_names
from tidelake.storage.model.types import STRING_ROOTS, AtomicType, DataField, DataType, MapType

_PREFIX: Final = "file-index."
_COLUMNS: Final = ".columns"


@dataclass(frozen=True, slots=True)
class IndexedColumn:
    """An indexed column, or an indexed key of a map.

    column: the column of the table.
    key: the key of the map whose values are indexed; None for the column itself.
    """

    column: str
    key: str | None = None

    @classmethod
    def parse(cls, text: str) -> IndexedColumn:
        column, bracket, rest = text.partition("[")
        return cls(column, rest[:-1]) if bracket and rest.endswith("]") else cls(text)

    def __str__(self) -> str:
        """Return the name in containers."""
        return self.column if self.key is None else f"{self.column}[{self.key}]"


@dataclass(frozen=True)
class FileIndexSettings:
    """The indexes of a table's columns.

    indexes: column -> kind -> the options of the index.
    in_manifest_threshold_bytes: containers up to this size are stored in the manifest, larger ones in separate files.
    """

    indexes: Mapping[IndexedColumn, Mapping[str, Mapping[str, str]]]
    in_manifest_threshold_bytes: int

    @classmethod
    def of(cls, options: TableOptions) -> FileIndexSettings:
        """Read the settings. Raises BadInput for an option of a column that has no such index."""
        indexes: dict[IndexedColumn, dict[str, dict[str, str]]] = {}
        for key, text in options.items():
            if key.startswith(_PREFIX) and key.endswith(_COLUMNS):
                kind = key.removeprefix(_PREFIX).removesuffix(_COLUMNS)
                for name in parse_names(text):
                    indexes.setdefault(IndexedColumn.parse(name), {}).setdefault(kind, {})
        for whole_map in (True, False):  # options of one key override those of the whole map
            for key, text in options.items():
                parts = key.removeprefix(_PREFIX).split(".")
                if key.startswith(_PREFIX) and not key.endswith(_COLUMNS) and len(parts) == 3:
                    cls._set(indexes, key, text, parts, whole_map)
        return cls(indexes, options.file_index_in_manifest_threshold_bytes)

    @staticmethod
    def _set(
        indexes: Mapping[IndexedColumn, Mapping[str, dict[str, str]]],
        option: str,
        text: str,
        parts: list[str],
        whole_map: bool,
    ) -> None:
        kind, name, word = parts
        itself = IndexedColumn.parse(name)
        exact = kind in indexes.get(itself, {})
        keys = [c for c in indexes if c.column == name and c.key is not None and kind in indexes[c]]
        if not exact and not keys:
            raise BadInput(
                f"option {option}: {name} has no such index; add it to {_PREFIX}{kind}{_COLUMNS}, or unset the option"
            )
        if whole_map != exact:
            for column in keys if whole_map else [itself]:
                indexes[column][kind][word] = text

    def __bool__(self) -> bool:
        return bool(self.indexes)

    @cached_property
    def columns(self) -> frozenset[str]:
        """The columns of the table that are needed to build the indexes."""
        return frozenset(indexed.column for indexed in self.indexes)

    def renamed(self, names: Mapping[str, str]) -> FileIndexSettings:
        """Return the settings for a file with other column names. Drops the indexes of columns not in `names`.

        names: name in the table -> name in the file.
        """
        indexes = {replace(c, column=names[c.column]): of for c, of in self.indexes.items() if c.column in names}
        return replace(self, indexes=indexes)

    def supported(self, fields: Mapping[str, DataField]) -> FileIndexSettings:
        """Drop the indexes that don't support the type of their column.

        fields: the columns, by name.
        """
        indexes: dict[IndexedColumn, dict[str, Mapping[str, str]]] = {}
        for indexed, kind in self.indexed_columns():
            try:
                self.writer(indexed, kind, fields)
            except BadInput:
                continue
            indexes.setdefault(indexed, {})[kind] = self.indexes[indexed][kind]
        return replace(self, indexes=indexes)

    def check(self, fields: Mapping[str, DataField]) -> None:
        """Raise BadInput, with option and column, for a column that can't be indexed."""
        for indexed, of_column in self.indexes.items():
            for kind in of_column:
                self.writer(indexed, kind, fields)

    def writer(self, indexed: IndexedColumn, kind: str, fields: Mapping[str, DataField]) -> IndexWriter:
        """Return a new writer of an index. Raises BadInput, with option and column."""
        option = f"option {_PREFIX}{kind}{_COLUMNS}"
        found = KINDS.get(kind)
        if found is None:
            raise BadInput(f"{option}: the index kind {kind!r} does not exist; choose one of {', '.join(KINDS)}")
        data_type = _indexed_type(option, indexed, fields)
        if not isinstance(data_type, AtomicType) or not found.takes(data_type):
            others = [name for name, other in KINDS.items() if other.supports(data_type)]
            remedy = f"the column can have {', '.join(others)}" if others else "no index supports it"
            raise BadInput(f"{option}: column {indexed} is {data_type}, which {kind} does not support; {remedy}")
        try:
            return found.writer(data_type, self.indexes[indexed][kind])
        except BadInput as error:
            raise BadInput(f"option {_PREFIX}{kind}.{indexed}.{error}") from None

    def indexed_columns(self) -> Iterator[tuple[IndexedColumn, str]]:
        for indexed, of_column in self.indexes.items():
            for kind in of_column:
                yield indexed, kind


def _indexed_type(option: str, indexed: IndexedColumn, fields: Mapping[str, DataField]) -> DataType:
    if (field := fields.get(indexed.column)) is None:
        known = f"the table has {', '.join(fields)}{did_you_mean(indexed.column, list(fields))}"
        raise BadInput(f"{option}: no column {indexed.column!r}; {known}")
    if indexed.key is None:
        return field.type
    if (of_key := value_type(field.type)) is None:
        raise BadInput(
            f"{option}: {indexed} names a key, but column {field.name} is {field.type}, not a MAP with string keys"
        )
    return of_key


def value_type(data_type: DataType) -> DataType | None:
    """Return the value type of a MAP with text keys, whose keys can be indexed. None for other types."""
    if not isinstance(data_type, MapType) or data_type.key.root not in STRING_ROOTS:
        return None
    return data_type.value
