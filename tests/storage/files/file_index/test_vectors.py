"""Indexes equal Java's byte by byte, and give the same answers."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.storage.files.file_index.index_cases import check_answer, check_answers, column, type_of, written
from tests.support.cases import Case, case_id, check_members, vector_files, vectors
from tidelake.storage.files.file_index.bit_sliced import BitSlicedIndex
from tidelake.storage.files.file_index.bitmap import BitmapIndex, bitmap_bytes
from tidelake.storage.files.file_index.bloom_filter import BloomFilterIndex, bit_count, hash_function_count
from tidelake.storage.files.file_index.container import Container, container_bytes
from tidelake.storage.files.file_index.distinct_values import DistinctValuesCollector
from tidelake.storage.files.file_index.indexed_values import is_text, numbers
from tidelake.storage.files.file_index.kinds import KINDS
from tidelake.storage.files.file_index.range_bitmap import RangeBitmapIndex
from tidelake.storage.files.file_index.value_hashes import hash_numbers, hash_texts
from tidelake.storage.model.options.values import parse_size_bytes

_ANSWERS = {"probes", "is_null", "is_not_null", "in", "not_in"}


@pytest.mark.parametrize("case", vectors("file-index-hash"), ids=lambda case: f"{case['type']} {case['value']!r}")
def test_a_value_has_the_same_hash_as_in_java(case: Case) -> None:
    check_members(case, {"type", "value", "signed", "hex"})
    data_type = type_of(case)
    values = column([case["value"]] * 3, data_type)
    hashes = hash_texts(values) if is_text(data_type) else hash_numbers(numbers(values, data_type))
    assert hashes.tolist() == [int(case["signed"])] * 3
    assert hashes.view(np.uint64)[0] == int(case["hex"], 16)


@pytest.mark.parametrize("case", vectors("file-index-bloom-filter"), ids=case_id)
def test_a_bloom_filter_equals_javas(case: Case) -> None:
    check_members(
        case, {"type", "options", "rows", "bytes", "num_bits", "num_hash_functions", "bit_positions", "equal"}
    )
    data_type = type_of(case)
    data = written(KINDS["bloom-filter"].writer(data_type, case["options"]), column(case["rows"], data_type))
    assert data.hex() == case["bytes"]
    assert int.from_bytes(data[:4]) == case["num_hash_functions"]
    bits = np.unpackbits(np.frombuffer(data, np.uint8, offset=4), bitorder="little")
    assert len(bits) == case["num_bits"]
    assert set(np.flatnonzero(bits)) == {at for of_row in case["bit_positions"] for at in of_row or ()}
    index = BloomFilterIndex(data, data_type)
    for probe in case["equal"]:
        check_members(probe, {"literal", "result"})
        check_answer(index.any_of(column([probe["literal"]], data_type)), probe["result"])


def test_a_bloom_filter_has_the_same_size_as_in_java() -> None:
    sizes = json.loads(vector_files()["file-index-bloom-filter"].read_text(encoding="utf-8"))["sizes"]
    assert sizes
    for size in sizes:
        check_members(size, {"items", "fpp", "num_bits", "num_hash_functions"})
        bits = bit_count(size["items"], size["fpp"])
        assert (bits, hash_function_count(size["items"], bits)) == (size["num_bits"], size["num_hash_functions"])


@pytest.mark.parametrize("case", vectors("file-index-bitmap"), ids=case_id)
def test_a_bitmap_index_equals_javas(case: Case) -> None:
    """Java writes values in the order of a hash map, which the case contains. We write them in sorted order."""
    check_members(case, {"type", "options", "rows", "bytes", "bitmap_layout_order", *_ANSWERS})
    data_type = type_of(case)
    rows = column(case["rows"], data_type)
    collector = DistinctValuesCollector(data_type)
    collector.add(rows)
    values = collector.finish()
    if values.numbers is None:
        texts = values.stored.to_pylist()
        layout = [texts.index(text.encode()) for text in case["bitmap_layout_order"]]
    else:
        layout = np.searchsorted(values.numbers, np.array(case["bitmap_layout_order"], np.int64)).tolist()
    version = int(case["options"]["version"])
    block_size = parse_size_bytes(case["options"].get("index-block-size", "16kb"))
    assert bitmap_bytes(values, version, block_size, layout).hex() == case["bytes"]
    check_answers(case, BitmapIndex(bytes.fromhex(case["bytes"]), data_type))
    ours = written(KINDS["bitmap"].writer(data_type, case["options"]), rows)
    assert len(ours) == len(case["bytes"]) // 2
    check_answers(case, BitmapIndex(ours, data_type))


@pytest.mark.parametrize("case", vectors("file-index-bsi"), ids=case_id)
def test_a_bit_sliced_index_equals_javas(case: Case) -> None:
    check_members(case, {"type", "options", "rows", "bytes", "between", *_ANSWERS})
    data_type = type_of(case)
    data = written(KINDS["bsi"].writer(data_type, case["options"]), column(case["rows"], data_type))
    assert data.hex() == case["bytes"]
    check_answers(case, BitSlicedIndex(data, data_type))


@pytest.mark.parametrize("case", vectors("file-index-range-bitmap"), ids=case_id)
def test_a_range_bitmap_equals_javas(case: Case) -> None:
    check_members(case, {"type", "options", "rows", "bytes", "between", *_ANSWERS})
    data_type = type_of(case)
    data = written(KINDS["range-bitmap"].writer(data_type, case["options"]), column(case["rows"], data_type))
    assert data.hex() == case["bytes"]
    check_answers(case, RangeBitmapIndex(data, data_type))


@pytest.mark.parametrize("case", vectors("file-index-container"), ids=case_id)
def test_a_container_equals_javas(case: Case) -> None:
    check_members(case, {"columns", "bytes"})
    indexes = {
        name: {kind: None if body is None else bytes.fromhex(body) for kind, body in of_column}
        for name, of_column in case["columns"]
    }
    assert container_bytes(indexes).hex() == case["bytes"]
    assert Container.of_bytes(bytes.fromhex(case["bytes"]), "f").all() == indexes
