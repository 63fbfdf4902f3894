"""The common interface of records of all formats with envelopes: operation, row images and source table."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, auto
from typing import Any, ClassVar, Final, Protocol, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from tidelake.ingest.formats.base import Skipped
from tidelake.ingest.formats.connect_schema import SourceType
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.formats.values.json_text import BadValue

NULL: Final = msgspec.Raw(b"null")


class Op(IntEnum):
    """The operation of a record.

    UPDATE_BEFORE: the record with the old image of an update that is sent as two records.
    UPDATE_AFTER: the record with its new image.
    """

    INSERT = auto()
    UPDATE = auto()
    UPDATE_BEFORE = auto()
    UPDATE_AFTER = auto()
    DELETE = auto()
    TRUNCATE = auto()


class NotThisFormat(BadValue):
    """A record lacks members that all records of the format have."""


@dataclass(frozen=True, slots=True)
class ChangeEvent:
    """The change of one row in a record.

    op: the operation.
    before: column name to raw JSON of the old image; None if the record has no old image.
    after: column name to raw JSON of the new image; None if the record has no new image.
    knows_old_row: whether all values in `before` are certainly old values. False if some were copied from the new image
        and may have changed.
    unchanged: columns that the new image lacks, and that certainly did not change.
    """

    op: Op
    before: Mapping[str, bytes] | None
    after: Mapping[str, bytes] | None
    knows_old_row: bool = True
    unchanged: frozenset[str] = frozenset()


RowImages: TypeAlias = tuple[Sequence[Any], Sequence[Any], NDArray[np.int8], Sequence[int]]
"""The row images of some records:

- images: the new image, for UPDATE_BEFORE and DELETE the old one
- old images of updates; None for an image without one
- numbers of `Op`, one for each image
- the number of images of each record
"""


@dataclass(frozen=True, slots=True)
class ImageTypes:
    """The structs into which images of one shape are decoded.

    whole: for a row with all columns of the table. Other rows can't be decoded into it. It is faster to process.
    partial: for a row that may lack columns.
    old: for an old image. It has only the columns that are needed.
    """

    whole: Any
    partial: Any
    old: Any


class DirectReader(Protocol):
    """A decoder of records of one shape with their images. It refuses records of any other shape."""

    def read(self, records: bytes | memoryview, n: int) -> RowImages:
        """Return the images of n concatenated records.

        Raises ValueError, or an error of msgspec, if a record must be read in another way.
        """
        ...


class Envelope(msgspec.Struct, gc=False, kw_only=True):
    """A decoded record of one format. Its row images are raw JSON.

    A format must define `event`, `source_table`, `shape` and `changes`. With `images` its records are decoded
    many times as fast. The other methods are for what its records contain in addition.

    OLD_IS_PARTIAL: whether old images have only the changed columns.
    OLD_LISTS_CHANGES: whether the old image of an update has exactly the columns whose values changed.
    MISSING_OLD_IS_UNCHANGED: whether a column that an old image lacks certainly has the value of the new image.
    OMITTED: what a column is that both images of an update lack, if the producer has its default settings (`null` or
        `unchanged`; see `omitted_columns`). None if images are always whole rows, in which a missing column is NULL.
    ROW_BY_ROW_ONLY: whether records must be read one by one.
    KEY_NAMES_COLUMNS: whether the record's key may name the columns of the primary key, so that `shape` needs it.
    """

    OLD_IS_PARTIAL: ClassVar[bool] = False
    OLD_LISTS_CHANGES: ClassVar[bool] = False
    MISSING_OLD_IS_UNCHANGED: ClassVar[bool] = True
    OMITTED: ClassVar[str | None] = None
    ROW_BY_ROW_ONLY: ClassVar[bool] = False
    KEY_NAMES_COLUMNS: ClassVar[bool] = False

    def keyed(self, key: bytes | None) -> Envelope:
        """Return the record with its key, if `changes` needs the key; else the record itself."""
        return self

    @abstractmethod
    def event(self) -> Op | Skipped:
        """Return the record's operation, or why it is skipped.

        Raises NotThisFormat for a record of another format, and BadValue for an unknown operation.
        """

    @abstractmethod
    def source_table(self, topic: str) -> SourceTable: ...

    @abstractmethod
    def shape(self) -> Hashable:
        """Return a value that is equal for records of one source table with the same declared types.

        It differs for records without a row change.
        """

    def declared_types(self) -> Mapping[str, SourceType]:
        """Return column name to declared type; empty if the record declares none. Raises BadValue if unreadable."""
        return {}

    def ddl_text(self) -> str | None:
        """Return the statement of a schema change; None if the record contains none."""
        return None

    def primary_key(self, key: bytes | None) -> Sequence[str]:
        """Return the columns of the source table's primary key that the record or its key names."""
        return ()

    def images(self, columns: Collection[str]) -> tuple[Sequence[msgspec.Raw], Sequence[msgspec.Raw] | None]:
        """Return the new images and the old images.

        For UPDATE_BEFORE and DELETE, old images take the place of the new ones. The second result is None, except for
        an UPDATE: then it has an old image for each new one.

        The rows must be those of `changes`. The default reads all records by `changes`.

        columns: the table's columns.

        Raises ValueError for a record that only `changes` can read.
        """
        raise ValueError("read one by one")

    def direct_reader(self, images: ImageTypes) -> DirectReader | None:
        """Return a reader for records of this record's shape; None if the format has none."""
        return None

    @abstractmethod
    def changes(self, op: Op, columns: Collection[str]) -> Sequence[ChangeEvent]:
        """Return the changes of the record's rows in order, at least one.

        columns: the table's columns.

        Raises BadValue for an invalid record.
        """


class EmptyRecord(BadValue):
    """A record of a row change has no rows."""

    def __init__(self, operation: str, member: str) -> None:
        super().__init__(f"{operation} has no rows: `{member}` is null, empty or missing")
