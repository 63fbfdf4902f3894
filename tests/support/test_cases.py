"""Test material is found in our folders or those of a hook, packed or plain."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import zstandard

from tests.golden.pack import pack
from tests.support.cases import (
    TESTS,
    case_id,
    golden_expected,
    golden_table,
    golden_tables,
    recorded_lines,
    recorded_topics,
    recorded_truth,
    recording,
    unpack_golden,
    vector_files,
    vectors,
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A folder that passes for a golden table."""
    root = tmp_path / "made" / "small"
    (root / "bucket-0").mkdir(parents=True)
    (root / "tag").mkdir()
    (root / "bucket-0" / "data-1.parquet").write_bytes(b"\x00rows")
    (root / "expected.json").write_text('{"rows": [[1]]}')
    return root


def test_a_table_packs_to_the_same_bytes_independent_of_times_and_modes(table: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first.tar.zst", tmp_path / "second.tar.zst"
    pack(table, first)
    os.utime(table / "expected.json", (1, 1))
    (table / "expected.json").chmod(0o600)
    pack(table, second)
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("is_packed", [True, False], ids=["packed", "plain"])
@pytest.mark.parametrize("writer", ["", "java"], ids=["tables in the folder", "in a folder below it"])
def test_a_hook_s_golden_tables_are_found_and_unpacked(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: str, is_packed: bool
) -> None:
    folder = tmp_path / "hook"
    target = folder / writer / table.name
    target.parent.mkdir(parents=True)
    if is_packed:
        pack(table, target.parent / f"{table.name}.tar.zst")
    else:
        table.rename(target)
    monkeypatch.setenv("TIDELAKE_GOLDEN", str(folder))

    (found,) = golden_tables()
    assert found.id == f"{writer or 'hook'}/small"
    warehouse = found.unpack(tmp_path / "out")
    root = warehouse / "golden.db" / "small"
    assert golden_expected(warehouse, "small") == {"rows": [[1]]}
    assert (root / "bucket-0" / "data-1.parquet").read_bytes() == b"\x00rows"
    assert (root / "tag").is_dir()


def test_two_golden_tables_unpack_into_one_warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDELAKE_GOLDEN", raising=False)
    warehouse = unpack_golden("java/tags_branches", tmp_path)
    assert unpack_golden("pypaimon/pk_orc", tmp_path) == warehouse
    assert {path.name for path in (warehouse / "golden.db").iterdir()} == {"tags_branches", "pk_orc"}
    assert golden_table("pypaimon/pk_orc").identifier == "golden.pk_orc"


def test_a_suite_has_its_cases_under_either_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one.json").write_text(json.dumps({"vectors": [{"name": "a"}]}))
    (tmp_path / "two.json").write_text(json.dumps({"cases": [{"id": "b"}, {"x": 1}]}))
    monkeypatch.setenv("TIDELAKE_VECTORS", str(tmp_path))
    assert vector_files().keys() == {"one", "two"}
    one, two, three = "one", "two", "three"  # in variables: tests/test_vectors.py takes literals for claims
    assert [case_id(case) for case in vectors(one)] == ["a"]
    assert [case_id(case) for case in vectors(two)] == ["b", None]
    assert vectors(three) == []


def test_a_missing_suite_of_ours_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDELAKE_VECTORS", raising=False)
    gone = "gone"
    with pytest.raises(FileNotFoundError, match="no suite 'gone'"):
        vectors(gone)


def test_a_recording_s_lines_end_at_newlines_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "shop" / "json-plain"
    folder.mkdir(parents=True)
    lines = ["a\u2028b", "c\x85d"]
    text = "".join(json.dumps({"value": line}, ensure_ascii=False) + "\n" for line in lines)
    (folder / "shop.orders.jsonl.zst").write_bytes(zstandard.compress(text.encode()))
    monkeypatch.setenv("TIDELAKE_RECORDED", str(tmp_path))
    topics = recorded_topics("shop", "json-plain")
    assert list(topics) == ["shop.orders"]
    assert [record["value"] for record in recorded_lines(topics["shop.orders"])] == lines


def test_a_missing_recording_raises() -> None:
    with pytest.raises(FileNotFoundError, match="no recording"):
        recording("pg-shop", "json-unheard-of")


def test_the_truth_of_a_capture_is_read_packed_and_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDELAKE_RECORDED", raising=False)
    assert recording("pg-shop") == TESTS / "recorded" / "pg-shop"
    assert len(recorded_truth("pg-shop")["tables"]) == 4
    assert len(recorded_truth("orders-100k")["tables"]) == 1
