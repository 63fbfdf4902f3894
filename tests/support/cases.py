"""Finds the test data: vectors, golden tables and recordings.

TIDELAKE_VECTORS    folder of <suite>.json files                          (default: tests/vectors)
TIDELAKE_GOLDEN     folder of table folders or of <name>.tar.zst files, or of folders of these (default: tests/golden)
TIDELAKE_RECORDED   folder of captures                                    (default: tests/recorded)
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import tarfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import zstandard

TESTS: Final = Path(__file__).parent.parent
GOLDEN_DATABASE: Final = "golden"
PACKED: Final = ".tar.zst"

REMARKS: Final = frozenset(  # members of a case that are only for people
    {
        *("id", "name", "title", "origin", "source", "provenance", "test", "issue", "tags"),
        *("description", "about", "note", "notes", "comment", "remark", "remarks", "why", "reason"),
    }
)
_UNITS: Final = {"bytes": "b", "ms": "ms", "millis": "ms", "seconds": "s", "minutes": "min", "hours": "h", "days": "d"}

Case = dict[str, Any]


class NotUnderstood(AssertionError):
    """A case contains something that its runner doesn't know. Fix the runner."""


def _folder(hook: str, default: str) -> Path:
    return Path(os.environ.get(hook) or TESTS / default)


def is_overridden(hook: str) -> bool:
    """Returns whether a hook names another folder, whose data may differ from ours or be incomplete."""
    return bool(os.environ.get(hook))


# ---------------------------------------------------------------- vectors


def vector_files() -> dict[str, Path]:
    """Returns the file of each suite in the folder, by name."""
    return {path.stem: path for path in sorted(_folder("TIDELAKE_VECTORS", "vectors").glob("*.json"))}


def vectors(suite: str) -> list[Case]:
    """Returns the cases of a suite, in file order. Use as `parametrize("case", vectors("levels"), ids=case_id)`.

    Pass the name as a literal: tests/test_vectors.py searches for these calls, to check that each suite has a test.
    A folder of the hook may lack suites; our own folder must have all.
    """
    path = vector_files().get(suite)
    if path is None:
        if is_overridden("TIDELAKE_VECTORS"):
            return []
        raise FileNotFoundError(f"no suite {suite!r} in {_folder('TIDELAKE_VECTORS', 'vectors')}")
    return _cases_in(path)


def own_vectors(suite: str) -> list[Case]:
    """Returns the cases in tests/vectors, also with a hook. Test helpers are checked with them, too."""
    return _cases_in(TESTS / "vectors" / f"{suite}.json")


def _cases_in(path: Path) -> list[Case]:
    members = json.loads(path.read_text(encoding="utf-8"))
    cases: list[Case] = members["cases"] if "cases" in members else members["vectors"]
    return cases


def check_members(part: Mapping[str, Any], known: Collection[str]) -> None:
    """Checks the members of a case, or of a part of it. Raises NotUnderstood for members that its runner ignores."""
    unknown = part.keys() - known - REMARKS
    if unknown:
        raise NotUnderstood(f"{', '.join(sorted(unknown))} in a case; its runner knows {', '.join(sorted(known))}")


def options_of(case: Case) -> dict[str, str]:
    """Returns the options of a case as table options. Suites also write numbers, booleans, and units in names."""
    options: dict[str, str] = {}
    for name, value in case.get("options", {}).items():
        stem, _, unit = name.rpartition("-")
        if isinstance(value, bool):
            options[name] = str(value).lower()
        elif isinstance(value, int) and unit in _UNITS:
            options[stem] = f"{value} {_UNITS[unit]}"
        elif value is not None:
            options[name] = str(value)
    return options


def case_id(case: Case) -> str | None:
    """Returns the id of a case for pytest; None, for a numbered id, if the file gives it no name."""
    name = case.get("id", case.get("name"))
    return None if name is None else str(name)


# ---------------------------------------------------------------- golden tables


@dataclass(frozen=True)
class GoldenTable:
    """A table of another implementation, with the rows that it reads itself (`expected.json`)."""

    writer: str  # java or pypaimon: the name of the folder
    name: str
    source: Path  # a folder, or a packed file

    @property
    def id(self) -> str:
        return f"{self.writer}/{self.name}"

    @property
    def identifier(self) -> str:
        """The table `database.table` in the warehouse of `unpack`."""
        return f"{GOLDEN_DATABASE}.{self.name}"

    def unpack(self, target: Path) -> Path:
        """Unpacks this table into a warehouse below `target`, which may already have other tables. Returns its path."""
        warehouse = target / "warehouse"
        root = warehouse / f"{GOLDEN_DATABASE}.db" / self.name
        root.mkdir(parents=True)
        if self.source.is_dir():
            shutil.copytree(self.source, root, dirs_exist_ok=True, copy_function=shutil.copyfile)
        else:
            with zstandard.open(self.source, "rb") as packed, tarfile.open(fileobj=packed, mode="r|") as archive:
                archive.extractall(root, filter="data")
        return warehouse


def golden_tables() -> list[GoldenTable]:
    """Returns all golden tables, sorted by writer and name."""
    top = _folder("TIDELAKE_GOLDEN", "golden")
    folders = [top, *sorted(path for path in top.iterdir() if path.is_dir())]
    return [table for folder in folders for table in _tables_in(folder)]


def golden_table(table_id: str) -> GoldenTable:
    """Returns a golden table by its id, such as `java/tags_branches`."""
    return next(table for table in golden_tables() if table.id == table_id)


def _tables_in(folder: Path) -> Iterator[GoldenTable]:
    for path in sorted(folder.iterdir()):
        if path.name.endswith(PACKED):
            yield GoldenTable(folder.name, path.name.removesuffix(PACKED), path)
        elif (path / "expected.json").exists():
            yield GoldenTable(folder.name, path.name, path)


def unpack_golden(table_id: str, target: Path) -> Path:
    """Returns a warehouse below `target`, in which golden table `java/tags_branches` is `golden.tags_branches`."""
    return golden_table(table_id).unpack(target)


def golden_expected(warehouse: Path, name: str) -> dict[str, Any]:
    """Returns expected.json of an unpacked golden table."""
    text = (warehouse / f"{GOLDEN_DATABASE}.db" / name / "expected.json").read_text(encoding="utf-8")
    expected: dict[str, Any] = json.loads(text)
    return expected


# ---------------------------------------------------------------- recordings


def recorded_folder() -> Path:
    """Returns the folder of the captures."""
    return _folder("TIDELAKE_RECORDED", "recorded")


def recording(capture: str, variant: str | None = None) -> Path:
    """Returns the folder of a recording: `recording("pg-shop", "json-plain")`, `recording("orders-100k")`.

    If we have a recording of this name, it has priority over the hook, because the caller relies on its content.
    """
    for top in (TESTS / "recorded", recorded_folder()):
        path = top / capture / (variant or "")
        if path.is_dir():
            return path
    raise FileNotFoundError(f"no recording {path}")


def sample_folders() -> list[Path]:
    """Returns the sample folders, one per format, in the folder of recordings. A hook's folder may have none."""
    top = recorded_folder() / "formats"
    if not top.is_dir() and is_overridden("TIDELAKE_RECORDED"):
        return []
    return sorted(path for path in top.iterdir() if path.is_dir())


def recorded_topics(capture: str, variant: str | None = None) -> dict[str, Path]:
    """Returns the files of a recording, by topic."""
    return {
        path.name.removesuffix(".jsonl.zst"): path for path in sorted(recording(capture, variant).glob("*.jsonl.zst"))
    }


def recorded_lines(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yields the records of a topic in their order. Only \\n ends a line, because values contain U+2028."""
    with _open(path) as lines:
        for line in lines.read().split(b"\n"):
            if line:
                yield json.loads(line)


def recorded_bytes(line: Mapping[str, Any], name: str) -> bytes | None:
    """Returns the `key` or `value` of a record."""
    if f"{name}_base64" in line:
        return None if line[f"{name}_base64"] is None else base64.b64decode(line[f"{name}_base64"])
    return None if line[name] is None else str(line[name]).encode()


def raw_lines(path: Path) -> list[bytes]:
    """Returns the lines of a topic as bytes, without line ends."""
    with _open(path) as lines:
        return [line for line in lines.read().split(b"\n") if line]


def recorded_truth(capture: str) -> dict[str, Any]:
    """Returns `expected.json` of a capture: the content of the database at the end."""
    return truth_in(recording(capture))


def truth_in(capture: Path) -> dict[str, Any]:
    """Returns `expected.json` in the folder of a capture."""
    (path,) = capture.glob("expected.json*")
    with _open(path) as data:
        truth: dict[str, Any] = json.load(data)
    return truth


def _open(path: Path) -> BinaryIO:
    return zstandard.open(path, "rb") if path.suffix == ".zst" else path.open("rb")
