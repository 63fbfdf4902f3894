"""Whether a before image says more than the key of its record.

PostgreSQL logs only the key of an old row unless REPLICA IDENTITY is FULL, and Debezium then fills the other columns
with nulls or, where they are NOT NULL, with values it makes up: "", 0, false, 1970-01-01T00:00:00Z.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_MADE_UP: Final = re.compile(
    rb'null|false|\[\]|\{\}|"?-?0*(?:\.0*)?(?:E[+-]?\d+)?"?'  # nothing, or zero as a number or as its digits
    rb'|"A+={0,2}"'  # base64 of zero bytes
    rb'|"1970-01-01(?:[T ]00:00:00(?:\.0+)?)?Z?"|"00:00:00(?:\.0+)?Z?"'
    rb'|"00000000-0000-0000-0000-000000000000"'
)


def has_values_outside_key(values_outside_key: Iterable[bytes]) -> bool:
    """Whether any raw JSON value can't have been made up. A row of nothing but zeros counts as made up."""
    return any(_MADE_UP.fullmatch(raw) is None for raw in values_outside_key)
