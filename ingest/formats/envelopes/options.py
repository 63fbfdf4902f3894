"""The options that formats of envelopes have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, get_args

from storage.errors import BadInput
from storage.messages.suggestions import did_you_mean

_Truncates = Literal["apply", "fail", "skip"]
_InexactValues = Literal["fail", "round"]
_BinaryHandlingMode = Literal["base64", "hex"]
_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "truncates": get_args(_Truncates),
    "inexact_values": get_args(_InexactValues),
    "binary_handling_mode": get_args(_BinaryHandlingMode),
}


@dataclass(frozen=True)
class EnvelopeOptions:
    """truncates: what a truncate of the source table is: it empties the table (where it can), is a failure, or skipped.
    inexact_values: what a value is that has more digits than its column's type, a failure or rounded.
    binary_handling_mode: how bytes come whose type the records don't declare.
    """

    truncates: _Truncates = "apply"
    inexact_values: _InexactValues = "fail"
    binary_handling_mode: _BinaryHandlingMode = "base64"

    @classmethod
    def parsed(cls, format_: str, options: Mapping[str, Any]) -> EnvelopeOptions:
        """Raises BadInput, naming the format, for an unknown option and for an invalid value."""
        known = [field.name for field in fields(cls)]
        for name, value in options.items():
            if name not in known:
                hint = did_you_mean(name, known) or "."
                raise BadInput(f"`format_options`: {format_} has no option {name!r}{hint} It has {', '.join(known)}")
            if value not in _WORDS[name]:
                raise BadInput(f"{name} of {format_} is {' or '.join(_WORDS[name])}, not {value!r}")
        return cls(**options)
