"""Detects whether a before image has more old values than the key of its record.

Without REPLICA IDENTITY FULL, PostgreSQL logs only the key of an old row. Debezium then fills the other columns with
nulls, and NOT NULL columns with made-up values: "", 0, false, 1970-01-01T00:00:00Z.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_PLACEHOLDER_VALUE: Final = re.compile(
    rb'null|false|\[\]|\{\}|"?-?0*(?:\.0*)?(?:E[+-]?\d+)?"?'  # empty values, or zero as a number or a text
    rb'|"A+={0,2}"'  # base64 of zero bytes
    rb'|"1970-01-01(?:[T ]00:00:00(?:\.0+)?)?Z?"|"00:00:00(?:\.0+)?Z?"'
    rb'|"00000000-0000-0000-0000-000000000000"'
)


def has_values_outside_key(values_outside_key: Iterable[bytes]) -> bool:
    """Return whether any raw JSON value is certainly not made up. A row with zeros only counts as made up."""
    return any(_PLACEHOLDER_VALUE.fullmatch(raw) is None for raw in values_outside_key)
