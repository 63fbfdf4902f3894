"""Record batches become columns equal to the records of aiokafka's parser, and damaged batches are refused."""

from __future__ import annotations

from typing import Any, Final

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import READ_COMMITTED, PartitionRecords
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st

from tidelake.ingest.raw_batch import Headers
from tidelake.ingest.sources.kafka.client_internals import unpack_as_batches
from tidelake.ingest.sources.kafka.decompression import DecompressionLimitExceeded
from tidelake.ingest.sources.kafka.fetched_batch import FetchedBatch
from tidelake.ingest.sources.kafka.fetched_records import FetchedRecords
from tidelake.ingest.sources.kafka.record_columns import RecordColumns, columns_of

LIMIT: Final = 1 << 20
HEADER_BYTES: Final = 61  # of a batch
COUNT_AT: Final = 57  # the number of its records
CHECKSUM_AT: Final = 17
ATTRIBUTES_AT: Final = 21
CONTROL: Final = 0x20  # in the attributes

_text = st.none() | st.binary(max_size=300)
_record = st.tuples(
    st.none() | st.integers(0, 2**41),
    _text,
    _text,
    st.lists(st.tuples(st.sampled_from(["kept", "kept too", "x"]), _text)),
)
_batch = st.tuples(st.integers(0, 4), st.lists(st.tuples(st.integers(1, 3), _record), min_size=1, max_size=20))


def encoded(records: list[tuple[int, Any]], codec: int = 0, base: int = 0) -> bytes:
    """A batch of (offset from its first one, (time, key, value, headers))."""
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, 0, 1 << 30)
    for offset, (timestamp, key, value, headers) in records:
        builder.append(offset, timestamp, key, value, headers)
    data = bytearray(builder.build())
    data[:8] = base.to_bytes(8, "big")  # the checksum doesn't cover it
    return bytes(data)


def unpacked(data: bytes, position: int) -> PartitionRecords:
    return PartitionRecords(TopicPartition("t", 0), MemoryRecords(data), [], position, None, None, True, READ_COMMITTED)


def taken(data: bytes, position: int = 0) -> RecordColumns:
    records = unpacked(data, position)
    unpack_as_batches(records, data)
    fetched = FetchedRecords(LIMIT)
    fetched.add(records)
    columns, next_offset = fetched.take(1 << 30)
    assert next_offset is None
    return columns


@given(st.lists(_batch, max_size=4), st.integers(0, 30))
def test_columns_equal_the_records_of_aiokafka(batches: list[Any], position: int) -> None:
    data, base = b"", 0
    for codec, gaps in batches:
        offset, records = -1, []
        for gap, record in gaps:
            offset += gap
            records.append((offset, record))
        data += encoded(records, codec, base)
        base += offset + 1
    expected = list(unpacked(data, position)) if data else []
    found = taken(data, position) if data else columns_of([])
    assert found.offsets.tolist() == [record.offset for record in expected]
    assert found.timestamps_ms.tolist() == [record.timestamp for record in expected]
    assert found.timestamp_types.tolist() == [record.timestamp_type for record in expected]
    assert found.keys.to_pylist() == [record.key for record in expected]
    assert found.values.to_pylist() == [record.value for record in expected]
    assert headers_of(found) == [tuple(record.headers) for record in expected]
    wanted = frozenset({"kept", "kept too"})
    kept = {row: tuple(h for h in record.headers if h[0] in wanted) for row, record in enumerate(expected)}
    assert found.headers_named(wanted) == {row: headers for row, headers in kept.items() if headers}


def headers_of(columns: RecordColumns) -> list[Headers]:
    """Of each record."""
    distinct, of_records = columns.distinct_headers()
    return [distinct[number] for number in of_records.to_pylist()]


@given(_batch, st.data())
def test_damaged_batches_are_refused_or_read_without_other_errors(batch: Any, data: Any) -> None:
    records = [(n, record) for n, (_, record) in enumerate(batch[1])]
    octets = bytearray(encoded(records))
    for _ in range(data.draw(st.integers(1, 3))):
        octets[data.draw(st.integers(COUNT_AT, len(octets) - 1))] = data.draw(st.integers(0, 255))
    one = FetchedBatch(bytes(octets))
    try:
        columns = columns_of([one])
        columns.distinct_headers()
    except CorruptRecordException:
        return
    assert len(columns) <= one.record_count


@pytest.mark.parametrize(
    ("what", "damage"),
    [
        ("a record is missing", {COUNT_AT + 3: 3}),
        ("a record too many", {COUNT_AT + 3: 1}),
        ("a negative number of records", {COUNT_AT: 0xFF}),
        ("a record that is longer than the batch", {HEADER_BYTES: 0x7E}),
        ("a key that is longer than its record", {HEADER_BYTES + 4: 0x7E}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_batch_that_contradicts_its_header_is_refused(what: str, damage: dict[int, int]) -> None:
    octets = bytearray(encoded([(n, (7, b"key", b"value", [])) for n in range(2)]))
    for at, octet in damage.items():
        octets[at] = octet
    with pytest.raises(CorruptRecordException):
        columns_of([FetchedBatch(bytes(octets))])


def test_records_of_older_message_formats_are_read_also_before_batches() -> None:
    builder = LegacyRecordBatchBuilder(1, 0, 1 << 20)
    for offset in (0, 1):
        builder.append(offset, 5, None, b"old")
    fetched, data = FetchedRecords(LIMIT), bytes(builder.build())
    records = unpacked(data, 1)
    unpack_as_batches(records, data)
    fetched.add(records)
    fetched.add([FetchedBatch(encoded([(0, (6, b"k", b"new", [("kept", b"h")]))], base=2))])
    found, _ = fetched.take(1 << 20)
    assert (found.values.to_pylist(), found.offsets.tolist()) == ([b"old", b"new"], [1, 2])
    assert (found.keys.to_pylist(), headers_of(found)) == ([None, b"k"], [(), (("kept", b"h"),)])


def of_the_format_before(magic: int, codec: int, base: int, count: int) -> bytes:
    """Messages as brokers before 0.11 wrote them. Compressed messages are wrapped in one with the offset of the
    last.
    """
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for number in range(count):
        builder.append(number if codec and magic else base + number, 5, None, b"%d" % (base + number))
    data = bytearray(builder.build())
    if codec:
        data[:8] = (base + count - 1).to_bytes(8, "big")  # the checksum doesn't cover it
    return bytes(data)


@pytest.mark.parametrize("order", ["old new", "old old new", "new old", "old new old", "older old new"])
@pytest.mark.parametrize("codec", [0, 1], ids=["not compressed", "compressed"])
@pytest.mark.parametrize("position", [0, 1])  # brokers answer with the batch that has it, and what follows
def test_one_response_may_contain_batches_of_several_formats(order: str, codec: int, position: int) -> None:
    data, base = b"", 0
    for form in order.split():
        if form == "new":
            data += encoded([(n, (5, None, b"%d" % (base + n), [])) for n in range(2)], codec, base)
            base += 2
        else:
            data += of_the_format_before(0 if form == "older" else 1, codec, base, 3)
            base += 3
    cut_off = encoded([(0, (5, None, b"in the next answer", []))], base=base)[:40]
    for octets in (data, data + cut_off):
        found = taken(octets, position)
        assert found.offsets.tolist() == [*range(position, base)]
        assert found.values.to_pylist() == [b"%d" % offset for offset in range(position, base)]


def test_the_time_is_the_log_append_time_if_the_topic_says_so() -> None:
    octets = bytearray(encoded([(n, (1_000 + n, None, b"v", [])) for n in range(3)]))
    octets[22] |= 0x08  # attributes: the time is that of appending
    found = columns_of([FetchedBatch(bytes(octets))])
    assert (found.timestamps_ms.tolist(), found.timestamp_types.tolist()) == ([1_002] * 3, [1] * 3)


def test_fetched_records_are_taken_up_to_an_end_and_continued_from_it() -> None:
    fetched = FetchedRecords(LIMIT)
    for base in (0, 5):
        data = encoded([(n, (7, None, b"%d" % (base + n), [])) for n in range(5)], codec=4, base=base)
        fetched.add([FetchedBatch(data)])
    found = [fetched.take(1 << 30, end) for end in (3, 7)] + [fetched.take(1 << 30)]
    assert [columns.offsets.tolist() for columns, _ in found] == [[0, 1, 2], [3, 4, 5, 6], [7, 8, 9]]
    assert [next_offset for _, next_offset in found] == [3, 7, None]


def test_only_enough_for_one_batch_is_decompressed_at_a_time() -> None:
    fetched = FetchedRecords(LIMIT)
    for base in range(10):
        fetched.add([FetchedBatch(encoded([(0, (7, None, bytes(100_000), []))], codec=4, base=base))])
    assert [len(fetched.take(250_000)[0]) for _ in range(4)] == [3, 3, 3, 1]
    assert not fetched


def test_a_batch_beyond_the_limit_is_named_by_its_offset() -> None:
    fetched = FetchedRecords(1_000)
    fetched.add([FetchedBatch(encoded([(0, (7, None, bytes(2_000), []))], codec=1, base=17))])
    with pytest.raises(DecompressionLimitExceeded) as raised:
        fetched.take(1 << 20)
    assert raised.value.offset == 17


@given(_batch, st.data())
def test_a_batch_with_a_wrong_checksum_is_refused(batch: Any, data: Any) -> None:
    codec, gaps = batch
    octets = bytearray(encoded([(n, record) for n, (_, record) in enumerate(gaps)], codec))
    at = data.draw(st.integers(CHECKSUM_AT, len(octets) - 1))
    octets[at] ^= data.draw(st.integers(1, 255))
    assert not FetchedBatch(bytes(octets)).validate_crc()
    if not octets[ATTRIBUTES_AT + 1] & CONTROL:  # those are left to aiokafka
        with pytest.raises(CorruptRecordException):
            taken(bytes(octets))


@given(st.booleans(), st.integers(-1, 2**62))
def test_producer_fields_of_a_batch_equal_those_of_aiokafka(is_transactional: bool, producer_id: int) -> None:
    builder = DefaultRecordBatchBuilder(2, 0, int(is_transactional), producer_id, 0, 0, 1 << 20)
    builder.append(0, 5, None, b"value", [])
    data = bytes(builder.build())
    theirs, ours = MemoryRecords(data).next_batch(), FetchedBatch(data)
    assert (ours.is_transactional, ours.producer_id) == (theirs.is_transactional, theirs.producer_id)
    assert ours.validate_crc()
