"""A STRING column of JSON values equals its values decoded one by one, and is decoded at once where that is safe."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from tidelake.ingest.formats.columnar import COLUMNAR_FAILURES
from tidelake.ingest.formats.connect_schema import UNDECLARED, ConnectorSettings
from tidelake.ingest.formats.values.conversion import ColumnDecoder, value_by_value
from tidelake.ingest.formats.values.dispatch import any_value_decoder, value_decoder_for
from tidelake.ingest.formats.values.unavailable_placeholders import UnavailablePlaceholders
from tidelake.storage.model.types import parse_type

PLACEHOLDER: Final = "__debezium_unavailable_value"
_numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
_json = st.recursive(
    st.none() | st.booleans() | _numbers | st.text(max_size=8) | st.sampled_from([PLACEHOLDER, "0"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
)
_written = st.builds(lambda value, indent: json.dumps(value, indent=indent).encode(), _json, st.none() | st.just(1))
_raw = _written | st.sampled_from([b"-0", b"1e400", b"0.10", b'"\xff"', b'"a\tb"', b'"\\u00e9"', '"é"'.encode()])


def decoders(type_: str, placeholder: str) -> tuple[ColumnDecoder, ColumnDecoder]:
    target = parse_type(type_)
    decode = value_decoder_for(UNDECLARED, target, "", ConnectorSettings())
    known = UnavailablePlaceholders(placeholder)
    return any_value_decoder(UNDECLARED, decode, target, known), value_by_value(decode, target, known)


def read(decoder: ColumnDecoder, values: list[msgspec.Raw | None]) -> Any:
    try:
        column, flags = decoder.to_arrow(values)
    except COLUMNAR_FAILURES:
        return "refused"
    column.validate(full=True)
    return column.to_pylist(), None if flags is None else flags.tolist()


@given(
    st.lists(st.none() | _raw, max_size=6),
    st.sampled_from(["STRING", "VARCHAR(3)"]),
    st.sampled_from([PLACEHOLDER, "0"]),
)
@example([b"0", b'"0"', b"null", None], "STRING", "0")
@example([b"[\n]", b"1"], "STRING", PLACEHOLDER)
def test_a_column_equals_its_values_decoded_one_by_one(
    values: list[bytes | None], type_: str, placeholder: str
) -> None:
    at_once, one_by_one = decoders(type_, placeholder)
    raws = [None if value is None else msgspec.Raw(value) for value in values]
    assert read(at_once, raws) == read(one_by_one, raws)


def test_numbers_and_strings_are_not_decoded_one_by_one() -> None:
    def decode(raw: bytes) -> object:
        raise AssertionError(raw)

    decoder = any_value_decoder(UNDECLARED, decode, parse_type("STRING"), UnavailablePlaceholders(PLACEHOLDER))
    raws: list[msgspec.Raw | None] = [msgspec.Raw(raw) for raw in (b"1", b'"a, b"', b"null", b"-1.50", b"true")]
    assert read(decoder, raws) == (["1", "a, b", None, "-1.50", "true"], None)
