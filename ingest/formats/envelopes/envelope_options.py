"""The options that formats with envelopes share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, get_args

from tidelake.errors import BadInput
from tidelake.storage.model.messages import did_you_mean

_Truncates = Literal["apply", "fail", "skip"]
_InexactValues = Literal["fail", "round"]
_BinaryHandlingMode = Literal["base64", "hex"]
_Omitted = Literal["null", "unchanged"]
_ZeroDates = Literal["fail", "null"]
_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "truncates": get_args(_Truncates),
    "inexact_values": get_args(_InexactValues),
    "binary_handling_mode": get_args(_BinaryHandlingMode),
    "zero_dates": get_args(_ZeroDates),
    "omitted": get_args(_Omitted),
}


@dataclass(frozen=True)
class EnvelopeOptions:
    """The options that formats with envelopes share.

    truncates: whether a truncate of the source table empties the table, if that is possible (`apply`), is a failure
        (`fail`), or is skipped (`skip`).
    inexact_values: whether a value with more digits than its column's type is a failure (`fail`) or is rounded.
    binary_handling_mode: how bytes are encoded if the records don't declare their type.
    zero_dates: whether a MySQL date whose month or day is zero is a bad value (`fail`) or NULL.
    omitted: what a column is that an update leaves out (see `omitted_columns`); None for the format's default. Formats
        whose records are always whole rows don't have this option.
    """

    truncates: _Truncates = "apply"
    inexact_values: _InexactValues = "fail"
    binary_handling_mode: _BinaryHandlingMode = "base64"
    zero_dates: _ZeroDates = "fail"
    omitted: _Omitted | None = None

    @classmethod
    def parsed(cls, format_: str, options: Mapping[str, Any], *, has_partial_rows: bool = False) -> EnvelopeOptions:
        """Return the parsed options. Raises BadInput for an unknown option and for an invalid value."""
        known = [field.name for field in fields(cls) if has_partial_rows or field.name != "omitted"]
        for name, value in options.items():
            if name not in known:
                hint = did_you_mean(name, known) or "."
                raise BadInput(
                    f"`format_options`: {format_} has no option {name!r}{hint} Its options are {', '.join(known)}"
                )
            if value not in _WORDS[name]:
                raise BadInput(f"{name} of {format_} must be {' or '.join(_WORDS[name])}, not {value!r}")
        return cls(**options)
