"""Concatenates the rows of one table from consecutive parts of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa

from tidelake.ingest.formats.base import KeyChanges, TableRows, UnavailableValues


def joined_rows(parts: Sequence[TableRows]) -> TableRows:
    """Return the concatenated rows. parts: at least one, all of one target."""
    if len(parts) == 1:
        return parts[0]
    begins = [0, *accumulate(len(part.offsets) for part in parts)]
    return TableRows(
        parts[0].target,
        pa.concat_batches([part.rows for part in parts]),
        np.concatenate([part.offsets for part in parts]),
        _unavailable(parts, begins),
        _key_changes(parts, begins),
    )


def _unavailable(parts: Sequence[TableRows], begins: Sequence[int]) -> UnavailableValues | None:
    found = [
        (begin, part.unavailable) for begin, part in zip(begins, parts, strict=False) if part.unavailable is not None
    ]
    if not found:
        return None
    names = dict.fromkeys(name for _, one in found for name in one.columns)
    return UnavailableValues(
        np.concatenate([begin + one.rows for begin, one in found]),
        {
            name: np.concatenate([one.columns.get(name, np.zeros(len(one.rows), np.bool_)) for _, one in found])
            for name in names
        },
        pa.concat_batches([one.keys for _, one in found]),
    )


def _key_changes(parts: Sequence[TableRows], begins: Sequence[int]) -> KeyChanges | None:
    found = [
        (begin, part.key_changes) for begin, part in zip(begins, parts, strict=False) if part.key_changes is not None
    ]
    if not found:
        return None
    return KeyChanges(
        np.concatenate([begin + one.rows for begin, one in found]),
        [change for _, one in found for change in one.changes],
        found[0][1].departure,
    )
