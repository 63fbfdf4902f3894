"""Which lines of which files a batch contains: complete lines, each once, in file-name order."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.levels import examples
from tidelake.errors import BadInput
from tidelake.spark.changelog_folder import folder_files
from tidelake.spark.changelog_folder.folder_files import (
    FilePart,
    FolderBatchLimits,
    cut_line,
    next_positions,
    parts_between,
    sizes_of,
    tasks,
)


def planned(folder: Path, places: Mapping[str, int], **limits: int) -> dict[str, int]:
    return next_positions(folder, places, sizes_of(folder), FolderBatchLimits(**limits))


def text_of(folder: Path, starts: Mapping[str, int], ends: Mapping[str, int]) -> bytes:
    parts = [part for task in tasks(parts_between(folder, starts, ends)) for part in task]
    return b"".join((folder / part.name).read_bytes()[part.start : part.end] for part in parts)


@settings(max_examples=examples(200), deadline=None)
@given(
    appended=st.lists(st.tuples(st.sampled_from("abc"), st.binary(max_size=30)), max_size=12),
    files_max=st.sampled_from([None, 1, 2]),
    bytes_max=st.sampled_from([None, 1, 20]),
    task_bytes=st.sampled_from([1, 7, 1000]),
)
def test_every_complete_line_is_read_once_across_appends_and_batches(
    appended: list[tuple[str, bytes]], files_max: int | None, bytes_max: int | None, task_bytes: int
) -> None:
    limits = FolderBatchLimits(files_max, bytes_max)
    with TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        patch.setattr(folder_files, "TASK_BYTES", task_bytes)
        folder = Path(home)
        came: dict[str, bytes] = {}
        places: dict[str, int] = {}

        def read_all() -> None:
            nonlocal places
            while (ends := next_positions(folder, places, sizes_of(folder), limits)) != places:
                assert files_max is None or sum(ends[n] > places.get(n, 0) for n in ends) <= files_max
                for part in parts_between(folder, places, ends):
                    piece = (folder / part.name).read_bytes()[part.start : part.end]
                    assert piece.endswith(b"\n")
                    came[part.name] = came.get(part.name, b"") + piece
                places = ends

        for name, text in appended:
            with (folder / f"{name}.jsonl").open("ab") as file:
                file.write(text)
            read_all()
        for name in {name for name, _ in appended}:
            whole = (folder / f"{name}.jsonl").read_bytes()
            assert came.get(f"{name}.jsonl", b"") == whole[: whole.rfind(b"\n") + 1]


def test_a_last_line_is_complete_if_its_record_is(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n{"a": ')
    places = planned(tmp_path, {})
    assert text_of(tmp_path, {}, places) == b'{"a": 1}\n'
    assert "the last line is incomplete" in str(cut_line(tmp_path, places, sizes_of(tmp_path)))
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n{"a": 2}')
    more = planned(tmp_path, places)
    assert text_of(tmp_path, places, more) == b'{"a": 2}'
    assert cut_line(tmp_path, more, sizes_of(tmp_path)) is None


def test_files_are_read_in_name_order_and_other_files_are_ignored(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl.gz", "c.jsonl.zst", "d.json", "e.txt"):
        (tmp_path / name).write_text("x\n")
    assert [part.name for part in parts_between(tmp_path, {}, planned(tmp_path, {}))] == [
        "a.jsonl.gz",
        "b.jsonl",
        "c.jsonl.zst",
    ]
    assert list(planned(tmp_path, {}, files_max=2)) == ["a.jsonl.gz", "b.jsonl"]
    assert list(planned(tmp_path, {}, bytes_max=1)) == ["a.jsonl.gz"]


def test_a_large_file_is_split_into_tasks_and_small_ones_share_one(tmp_path: Path) -> None:
    line = b"x" * 999 + b"\n"
    (tmp_path / "a.jsonl").write_bytes(line * 40_000)
    for name in "bcd":
        (tmp_path / f"{name}.jsonl").write_bytes(line)
    found = tasks(parts_between(tmp_path, {}, planned(tmp_path, {})))
    assert [[part.name[0] for part in task] for task in found] == [["a"], ["a"], ["a", "b", "c", "d"]]
    assert max(sum(part.end - part.start for part in task) for task in found) <= folder_files.TASK_BYTES + 1000


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        pytest.param("a.jsonl", 1, "shrank from 4 to 1 bytes", id="a file that shrank"),
        pytest.param("a.jsonl.gz", 9, "grew from 4 to 9 bytes after it was read", id="a compressed one that grew"),
    ],
)
def test_files_that_change_are_refused(tmp_path: Path, name: str, size: int, message: str) -> None:
    (tmp_path / name).write_bytes(b"x" * size)
    with pytest.raises(BadInput, match=message):
        planned(tmp_path, {name: 4})


def test_a_read_file_may_be_deleted_but_a_planned_one_may_not(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"1\n")
    (tmp_path / "b.jsonl").write_bytes(b"x\n" * (10 << 20))
    places = planned(tmp_path, {}, files_max=1)
    (tmp_path / "a.jsonl").unlink()
    ends = planned(tmp_path, places)
    assert list(ends) == ["b.jsonl"]
    assert parts_between(tmp_path, places, ends)[0] == FilePart("b.jsonl", 0, folder_files.TASK_BYTES)
    (tmp_path / "b.jsonl").unlink()
    with pytest.raises(BadInput, match="was deleted, but a planned batch needs it"):
        parts_between(tmp_path, places, ends)
    with pytest.raises(BadInput, match="is not a folder"):
        sizes_of(tmp_path / "nothing")
