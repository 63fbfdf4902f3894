"""Debezium's placeholders for values that it does not have: large values of PostgreSQL and Oracle that did not change.

Source: Debezium's `UnchangedToastedPlaceholder`, and captures of connectors.
"""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelake.ingest.formats.values.json_text import compact


class Placeholders(Protocol):
    """Recognizes placeholders of values that the source does not have.

    The methods for columns return flags, True where a value is a placeholder; None if no value is one.
    """

    def is_placeholder(self, raw: bytes) -> bool:
        """Return whether a raw JSON value is a placeholder."""
        ...

    def in_texts(self, column: pa.Array) -> NDArray[np.bool_] | None:
        """Return the flags of a string column."""
        ...

    def in_octets(self, column: pa.Array) -> NDArray[np.bool_] | None:
        """Return the flags of a binary column whose bytes are not encoded."""
        ...

    def in_lists(self, values: Sequence[list[Any] | None]) -> NDArray[np.bool_] | None:
        """Return the flags of a column of lists."""
        ...

    def in_arrays(self, items: pa.Array, counts: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        """Return the flags of n concatenated lists.

        items: the items of all lists.
        counts (n,): number of items of each list.
        """
        ...


class NoPlaceholders:
    """The placeholders of a source that sends none."""

    def is_placeholder(self, raw: bytes) -> bool:
        return False

    def in_texts(self, column: pa.Array) -> NDArray[np.bool_] | None:
        return None

    def in_octets(self, column: pa.Array) -> NDArray[np.bool_] | None:
        return None

    def in_lists(self, values: Sequence[list[Any] | None]) -> NDArray[np.bool_] | None:
        return None

    def in_arrays(self, items: pa.Array, counts: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        return None


@dataclass(frozen=True)
class UnavailablePlaceholders:
    """The forms of the connector's `unavailable.value.placeholder`. Each kind of column has its own form.

    text: the value of that setting.
    """

    text: str

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """Its forms as a text: the text itself; bytes as base64 or hex; an hstore as JSON text."""
        data = self.text.encode()
        hstore = msgspec.json.encode({self.text: self.text}).decode()
        return (self.text, base64.b64encode(data).decode(), data.hex(), hstore)

    @cached_property
    def lists(self) -> tuple[list[str | int], ...]:
        """Its forms as an array: of texts, of bytes as base64 or hex, of UUIDs, of the text's character codes."""
        data = self.text.encode()
        name_uuid = uuid.UUID(bytes=hashlib.md5(data, usedforsecurity=False).digest(), version=3)
        return ([self.text], [base64.b64encode(data).decode()], [data.hex()], [str(name_uuid)], list(data))

    @cached_property
    def _raw(self) -> frozenset[bytes]:
        hstore = {self.text: self.text}
        return frozenset(msgspec.json.encode(shape) for shape in (*self.texts, *self.lists, hstore))

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._raw))

    def is_placeholder(self, raw: bytes) -> bool:
        """Return whether a raw JSON value is one of the forms."""
        if raw in self._raw:
            return True
        # A program between the connector and the topic may have rewritten the JSON with blanks after commas.
        return raw[:1] in b"[{" and len(raw) <= 3 * self._longest and b" " in raw and compact(raw) in self._raw

    @cached_property
    def _required_substrings(self) -> tuple[bytes, ...]:
        """Each of `texts` contains one of these."""
        return tuple(text.encode() for text in self.texts[:3])

    def in_texts(self, column: pa.Array) -> NDArray[np.bool_] | None:
        """Return the flags of a string column; None, found quickly, if no value is a placeholder."""
        data = column.buffers()[2]
        octets = b"" if data is None else data.to_pybytes()
        if not any(part in octets for part in self._required_substrings):
            return None
        found = pc.is_in(column, value_set=pa.array(self.texts, column.type))
        flags: NDArray[np.bool_] = found.to_numpy(zero_copy_only=False)
        return flags if flags.any() else None

    def in_octets(self, column: pa.Array) -> NDArray[np.bool_] | None:
        """Return the flags of a binary column whose bytes are not encoded."""
        data = column.buffers()[2]
        if data is None or self.text.encode() not in data.to_pybytes():
            return None
        found = pc.fill_null(pc.equal(column, pa.scalar(self.text.encode(), column.type)), False)
        flags: NDArray[np.bool_] = found.to_numpy(zero_copy_only=False)
        return flags if flags.any() else None

    def in_lists(self, values: Sequence[list[Any] | None]) -> NDArray[np.bool_] | None:
        """Return the flags of a column of lists."""
        if not any(shape in values for shape in self.lists):
            return None
        return np.fromiter((value in self.lists for value in values), np.bool_, len(values))

    def in_arrays(self, items: pa.Array, counts: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        """Return the flags of n concatenated lists.

        items: the items of all lists.
        counts (n,): number of items of each list.
        """
        octets: list[bytes] = [self.text.encode()]
        known: list[Sequence[str | int | bytes]] = [*self.lists, octets]
        shapes = [shape for shape in known if _holds(items.type, shape[0])]
        begins = np.cumsum(counts) - counts
        flags = np.zeros(len(counts), np.bool_)
        for shape in shapes:
            rows = np.flatnonzero(counts == len(shape))
            for number, member in enumerate(shape):
                if not len(rows):
                    break
                same = pc.equal(items.take(pa.array(begins[rows] + number)), pa.scalar(member, items.type))
                rows = rows[pc.fill_null(same, False).to_numpy(zero_copy_only=False)]
            flags[rows] = True
        return flags if flags.any() else None


def _holds(type_: pa.DataType, value: str | int | bytes) -> bool:
    if isinstance(value, int):
        return bool(pa.types.is_integer(type_))
    return bool(pa.types.is_string(type_) if isinstance(value, str) else pa.types.is_binary(type_))
