"""What a record says, whichever format it has: an operation, images of rows, the table they are of."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, auto
from typing import Any, ClassVar, Final, Protocol, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from ingest.formats.base import Skipped
from ingest.formats.connect_schema import SourceType
from ingest.formats.source_table import SourceTable
from ingest.formats.values.json_text import BadValue

NULL: Final = msgspec.Raw(b"null")


class Op(IntEnum):
    """What a record does to its table.

    UPDATE_BEFORE, UPDATE_AFTER: the old image, and the new one, of an update that is two records.
    """

    INSERT = auto()
    UPDATE = auto()
    UPDATE_BEFORE = auto()
    UPDATE_AFTER = auto()
    DELETE = auto()
    TRUNCATE = auto()


class NotThisFormat(BadValue):
    """The record lacks what every record of the format has."""


@dataclass(frozen=True, slots=True)
class ChangeEvent:
    """One row of a record.

    before, after: column to raw JSON; None for an image that the record does not have.
    knows_old_row: whether `before` holds old values alone, none of which is taken from the new row without need.
    """

    op: Op
    before: Mapping[str, bytes] | None
    after: Mapping[str, bytes] | None
    knows_old_row: bool = True


RowImages: TypeAlias = tuple[Sequence[Any], Sequence[Any], NDArray[np.int8], Sequence[int]]
"""Images of records, their old images (None if there is none), what each is of (numbers of `Op`), and how many
images each record has.
"""


@dataclass(frozen=True, slots=True)
class ImageTypes:
    """The structs that images of one shape are decoded into.

    whole: of a row that has every column of the table; others don't decode. Costs less to look through.
    partial: of a row that may lack some.
    old: of an old image, as far as it is needed.
    """

    whole: Any
    partial: Any
    old: Any


class DirectReader(Protocol):
    """Decodes records of one shape at once, images included. Not with another shape among them."""

    def read(self, records: bytes | memoryview, n: int) -> RowImages:
        """n objects one after another. Raises ValueError, or an error of msgspec's, for any that is to be read with
        more care.
        """
        ...


class Envelope(msgspec.Struct, gc=False, kw_only=True):
    """A record of one format, decoded as far as every format goes: images are raw JSON.

    FORMAT: the format's name.
    OLD_IS_PARTIAL: whether old images hold the changed columns, and no others.
    KNOWS_OLD_ROWS: whether a column that an old image lacks is known to be as in the new one.
    READ_ALONE: whether images of many records can't be read at once.
    """

    FORMAT: ClassVar[str]
    OLD_IS_PARTIAL: ClassVar[bool]
    KNOWS_OLD_ROWS: ClassVar[bool] = True
    READ_ALONE: ClassVar[bool] = False

    def keyed(self, key: bytes | None) -> Envelope:
        """The record, with the record's key, where `changes` wants it."""
        return self

    @abstractmethod
    def event(self) -> Op | Skipped:
        """What the record is. Raises NotThisFormat, or BadValue for an operation that the format does not have."""

    @abstractmethod
    def source_table(self, topic: str) -> SourceTable: ...

    @abstractmethod
    def shape(self) -> Hashable:
        """Equal for records of one source table whose values are read alike."""

    def declared_types(self) -> Mapping[str, SourceType]:
        """Column to what the record declares of it; empty where it declares nothing. Raises BadValue."""
        return {}

    def ddl_text(self) -> str | None:
        """The statement of a schema change; None where the format has none."""
        return None

    def primary_key(self, key: bytes | None) -> Sequence[str]:
        """Columns of the source table's primary key, as far as the record, or its key, says."""
        return ()

    @abstractmethod
    def images(self, columns: Collection[str]) -> tuple[Sequence[msgspec.Raw], Sequence[msgspec.Raw] | None]:
        """New images, of UPDATE_BEFORE and DELETE the old ones; and for an UPDATE as many old images, or None.

        columns: those of the table. Raises ValueError for a record that `changes` has to judge.
        """

    def direct_reader(self, images: ImageTypes) -> DirectReader | None:
        """For records of this one's shape, where the format has one."""
        return None

    @abstractmethod
    def changes(self, op: Op, columns: Collection[str]) -> Sequence[ChangeEvent]:
        """The rows of the record, in order. At least one. columns: those of the table. Raises BadValue."""


class Empty(BadValue):
    """A record that should have rows and has none."""

    def __init__(self, operation: str, member: str) -> None:
        super().__init__(f"{operation} without rows: `{member}` is null, empty or left out")
