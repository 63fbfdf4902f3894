"""Messages of the protobuf documentation, and broken ones."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidelake.storage.files.formats.orc.protobuf import parse_message, varints, zigzag


def test_fields_of_every_wire_type_are_parsed_by_number() -> None:
    message = parse_message(
        bytes.fromhex("089601" + "120774657374696e67" + "1a03089601" + "21" + "00" * 8 + "2d" + "01" * 4)
    )
    assert message == {1: [150], 2: [b"testing"], 3: [b"\x08\x96\x01"], 4: [bytes(8)], 5: [b"\x01" * 4]}
    assert parse_message(message[3][0]) == {1: [150]}


def test_a_repeated_field_keeps_all_its_values() -> None:
    assert parse_message(bytes.fromhex("080108020803")) == {1: [1, 2, 3]}
    assert list(varints(bytes.fromhex("038e029ea705"))) == [3, 270, 86942]


def test_signed_integers_alternate_around_zero() -> None:
    assert [zigzag(n) for n in range(5)] == [0, -1, 1, -2, 2]


@pytest.mark.parametrize("data", [b"\xff", b"\x0b", b"\x08"])
def test_an_invalid_message_raises(data: bytes) -> None:
    with pytest.raises(pa.ArrowInvalid, match="no protobuf message"):
        parse_message(data)
