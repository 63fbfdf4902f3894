"""Variants of Java, plain or shredded: we read the same bytes as Java, and make the same bytes from JSON text."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest

import tidelake
from tests.support.expected import difference
from tests.support.java_oracle import JavaOracle
from tidelake.storage.model.types import AtomicType, DataField, Root, VectorType, parse_type
from tidelake.storage.model.variants.builder import variant_of_json
from tidelake.storage.read.variants.variant_content import json_of

NAME: Final = "db.t"
FIELDS: Final = [
    {"name": "age", "type": "BIGINT"},
    {"name": "city", "type": "VARCHAR"},
    {"name": "ok", "type": "BOOLEAN"},
    {"name": "price", "type": "DECIMAL(9, 2)"},
    {"name": "ratio", "type": "DOUBLE"},
    {"name": "tags", "type": {"type": "ARRAY", "element": "VARCHAR"}},
    {"name": "in", "type": {"type": "ROW", "fields": [{"name": "x", "type": "INT"}, {"name": "y", "type": "VARCHAR"}]}},
]
SHREDDED: Final = json.dumps({"type": "ROW", "fields": [{"name": "v", "type": {"type": "ROW", "fields": FIELDS}}]})


def document(random: Random, depth: int = 0) -> Any:
    """Like the shredded fields, unlike them, and with others."""
    scalars: list[Any] = [None, True, 0, -7, 301, 70_001, 2**40, 2.5, 1e300, 12.30, "", "a\u001f\\", "é" * 40, "x" * 70]
    if depth > 2 or random.random() < 0.2:
        return random.choice(scalars)
    if random.random() < 0.15:
        return [document(random, depth + 1) for _ in range(random.randint(0, 3))]
    likely = {"age": 5, "city": "Oslo", "ok": False, "price": 1.25, "ratio": 1e10, "tags": ["p", "q"], "in": {"x": 1}}
    names = random.sample([*likely, "other", "Über", "a.b"], random.randint(0, 6))
    return {n: likely[n] if n in likely and random.random() < 0.6 else document(random, depth + 1) for n in names}


def alike(number: int) -> Any:
    """Java 2.0.0 infers no schema of numbers like 300 and 0.05: `Decimal scale must be between 0 and the precision`."""
    return {"age": 10 * number + 1, "city": f"c{number}", "in": {"x": 7, "y": None}, "tags": ["p"] * (number % 3)}


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="in one part"),
        pytest.param({"parquet.variant.shreddingSchema": SHREDDED}, id="shredded"),
        pytest.param({"variant.inferShreddingSchema": "true"}, id="shredded as Java infers it"),
    ],
)
def test_variants_equal_those_of_java_byte_by_byte(
    options: dict[str, str], tmp_path: Path, java_oracle: JavaOracle
) -> None:
    random = Random(3)
    infers = "variant.inferShreddingSchema" in options
    texts = [json.dumps(alike(i) if infers else document(random), ensure_ascii=False) for i in range(120)]
    columns = [{"name": "id", "type": "INT"}, {"name": "v", "type": "VARIANT"}]
    java_oracle.create(tmp_path, NAME, columns, options=options)
    rows: list[dict[str, Any]] = [{"id": i, "v": {"variant": text}} for i, text in enumerate(texts)]
    java_oracle.write(tmp_path, NAME, [*rows, {"id": -1}])
    theirs = {row["id"]: row["v"] for row in java_oracle.read(tmp_path, NAME)}
    table = tidelake.open_catalog(str(tmp_path)).table(NAME)
    ours = {row["id"]: row["v"] for row in table.scan().to_arrow().to_pylist()}
    assert ours.keys() == theirs.keys()
    assert ours[-1] is None
    for number, text in enumerate(texts):
        found, expected = ours[number], theirs[number]
        assert (found["value"].hex(), found["metadata"].hex()) == (expected["value"], expected["metadata"]), text
        assert json_of(found["value"], found["metadata"]) == expected["variant"]
        if not options:
            assert variant_of_json(text) == (found["value"], found["metadata"]), text


def test_variants_and_vectors_that_we_write_are_read_by_java(tmp_path: Path, java_oracle: JavaOracle) -> None:
    random = Random(4)
    texts = [None, *(json.dumps(document(random), ensure_ascii=False) for _ in range(30))]
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    vector = VectorType(parse_type("FLOAT"), 3)
    columns = [DataField(0, "v", AtomicType(Root.VARIANT)), DataField(1, "e", vector)]
    table = catalog.create_table(NAME, columns)
    vectors = [None if i % 5 == 1 else [i, -0.5, 1e10] for i in range(len(texts))]
    rows = {"v": tidelake.variant_from_json(pa.array(texts)), "e": pa.array(vectors, pa.list_(pa.float32(), 3))}
    with table.writer() as writer:
        writer.write(pa.table(rows))
        writer.commit()
    theirs = java_oracle.read(tmp_path, NAME)
    shown = tidelake.variant_to_json(table.scan().to_arrow().column("v")).to_pylist()
    assert [None if row["v"] is None else row["v"]["variant"] for row in theirs] == shown
    assert difference(table.scan().to_arrow(), [[row["v"], row["e"]] for row in theirs]) is None
