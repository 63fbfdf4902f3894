"""pypaimon and its Rust reader run in their own environment, and never replace one another silently."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.cases import golden_expected, unpack_golden
from tests.support.expected import difference
from tests.support.line_server import Refused
from tests.support.pypaimon import Pypaimon

ROWS = pa.table({"k": pa.array([1, 2], pa.int64()), "v": ["a", None]})


@pytest.mark.parametrize("native", [False, True], ids=["python", "rust"])
def test_written_rows_are_read_back(pypaimon: Pypaimon, tmp_path: Path, native: bool) -> None:
    schema = pa.schema([pa.field("k", pa.int64(), False), ("v", pa.string())])
    pypaimon.create(tmp_path, "d.t", schema, primary_keys=["k"], options={"bucket": "1"})
    assert pypaimon.write(tmp_path, "d.t", ROWS.cast(schema), native=native, commit_user="u", identifier=3) == 1
    assert difference(pypaimon.read(tmp_path, "d.t", native=native), [[1, "a"], [2, None]]) is None


@pytest.mark.parametrize("native", [False, True], ids=["python", "rust"])
def test_snapshots_tags_and_branches_are_read(pypaimon: Pypaimon, tmp_path: Path, native: bool) -> None:
    warehouse = unpack_golden("java/tags_branches", tmp_path)
    expected = golden_expected(warehouse, "tags_branches")
    table = "golden.tags_branches"
    assert difference(pypaimon.read(warehouse, table, native=native), expected["rows"]) is None
    one = pypaimon.read(warehouse, table, snapshot=1, native=native)
    assert difference(one, expected["snapshots"][0]["rows"]) is None
    tagged = pypaimon.read(warehouse, table, tag="second", native=native)
    assert difference(tagged, expected["tags"]["second"]["rows"]) is None
    branch = pypaimon.read(warehouse, f"{table}$branch_dev", native=native)
    assert difference(branch, expected["branches"]["dev"]["rows"]) is None


def test_the_rust_reader_is_refused_where_pypaimon_would_silently_fall_back(pypaimon: Pypaimon, tmp_path: Path) -> None:
    warehouse = unpack_golden("pypaimon/pk_avro", tmp_path)
    unknown_to_rust = {"file.format": "csv"}  # what new files would be; those of the table are Avro
    with pytest.raises(Refused, match="file format is not supported") as refused:
        pypaimon.read(warehouse, "golden.pk_avro", native=True, options=unknown_to_rust)
    assert refused.value.code == "NotNative"
    assert pypaimon.read(warehouse, "golden.pk_avro", options=unknown_to_rust).num_rows == 2
