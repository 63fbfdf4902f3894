"""Test material: vectors, golden tables and recordings, and their folders.

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

REMARKS: Final = frozenset(  # members of a case for people only, ignored by its runner
    {
        *("id", "name", "title", "origin", "source", "provenance", "test", "issue", "tags"),
        *("description", "about", "note", "notes", "comment", "remark", "remarks", "why", "reason"),
    }
)
_UNITS: Final = {"bytes": "b", "ms": "ms", "millis": "ms", "seconds": "s", "minutes": "min", "hours": "h", "days": "d"}

Case = dict[str, Any]


class NotUnderstood(AssertionError):
    """A case says something that its runner doesn't know. Fix the runner."""


def _folder(hook: str, default: str) -> Path:
    return Path(os.environ.get(hook) or TESTS / default)


def is_overridden(hook: str) -> bool:
    """Whether the material comes from elsewhere, and may be other or less than ours."""
    return bool(os.environ.get(hook))


# ---------------------------------------------------------------- vectors


def vector_files() -> dict[str, Path]:
    """Every suite in the folder, by name."""
    return {path.stem: path for path in sorted(_folder("TIDELAKE_VECTORS", "vectors").glob("*.json"))}


def vectors(suite: str) -> list[Case]:
    """The cases of a suite, in file order. Use as `parametrize("case", vectors("levels"), ids=case_id)`.

    Call it with the name written out: tests/test_vectors.py looks for the call to see that every suite has its test.
    A folder given by the hook need not have every suite; our own must.
    """
    path = vector_files().get(suite)
    if path is None:
        if is_overridden("TIDELAKE_VECTORS"):
            return []
        raise FileNotFoundError(f"no suite {suite!r} in {_folder('TIDELAKE_VECTORS', 'vectors')}")
    return _cases_in(path)


def own_vectors(suite: str) -> list[Case]:
    """The cases in tests/vectors, independent of the hook: to check code other than the product."""
    return _cases_in(TESTS / "vectors" / f"{suite}.json")


def _cases_in(path: Path) -> list[Case]:
    members = json.loads(path.read_text(encoding="utf-8"))
    cases: list[Case] = members["cases"] if "cases" in members else members["vectors"]
    return cases


def check_members(part: Mapping[str, Any], known: Collection[str]) -> None:
    """Of a case, or of a part of one. Raises NotUnderstood for members that its runner would pass over."""
    unknown = part.keys() - known - REMARKS
    if unknown:
        raise NotUnderstood(f"{', '.join(sorted(unknown))} in a case; its runner knows {', '.join(sorted(known))}")


def options_of(case: Case) -> dict[str, str]:
    """The options of a case as a table has them; the suites also write numbers, switches, and units into names."""
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
    """What pytest calls a case; None (numbered) where the file gives it no name."""
    name = case.get("id", case.get("name"))
    return None if name is None else str(name)


# ---------------------------------------------------------------- golden tables


@dataclass(frozen=True)
class GoldenTable:
    """A table that another implementation wrote, with what it read back (`expected.json`)."""

    writer: str  # java, pypaimon; the folder's name
    name: str
    source: Path  # a folder, or a packed one

    @property
    def id(self) -> str:
        return f"{self.writer}/{self.name}"

    @property
    def identifier(self) -> str:
        """database.table in the warehouse that `unpack` makes."""
        return f"{GOLDEN_DATABASE}.{self.name}"

    def unpack(self, target: Path) -> Path:
        """A warehouse below `target` with this table; call it twice with the same target and both tables are there."""
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
    """Every golden table, by writer and name."""
    top = _folder("TIDELAKE_GOLDEN", "golden")
    folders = [top, *sorted(path for path in top.iterdir() if path.is_dir())]
    return [table for folder in folders for table in _tables_in(folder)]


def golden_table(table_id: str) -> GoldenTable:
    """One golden table: `java/tags_branches`."""
    return next(table for table in golden_tables() if table.id == table_id)


def _tables_in(folder: Path) -> Iterator[GoldenTable]:
    for path in sorted(folder.iterdir()):
        if path.name.endswith(PACKED):
            yield GoldenTable(folder.name, path.name.removesuffix(PACKED), path)
        elif (path / "expected.json").exists():
            yield GoldenTable(folder.name, path.name, path)


def unpack_golden(table_id: str, target: Path) -> Path:
    """A warehouse below `target` with the golden table `java/tags_branches` as `golden.tags_branches`."""
    return golden_table(table_id).unpack(target)


def golden_expected(warehouse: Path, name: str) -> dict[str, Any]:
    """expected.json of an unpacked golden table."""
    text = (warehouse / f"{GOLDEN_DATABASE}.db" / name / "expected.json").read_text(encoding="utf-8")
    expected: dict[str, Any] = json.loads(text)
    return expected


# ---------------------------------------------------------------- recordings


def recorded_folder() -> Path:
    """The folder of the captures."""
    return _folder("TIDELAKE_RECORDED", "recorded")


def recording(capture: str, variant: str | None = None) -> Path:
    """Folder of a recording: `recording("pg-shop", "json-plain")`, `recording("orders-100k")`.

    Ours, where we have one of the name: who names a recording knows what is in it.
    """
    for top in (TESTS / "recorded", recorded_folder()):
        path = top / capture / (variant or "")
        if path.is_dir():
            return path
    raise FileNotFoundError(f"no recording {path}")


def sample_folders() -> list[Path]:
    """Samples of formats in the folder of recordings, one folder a format; a hook's folder may have none."""
    top = recorded_folder() / "formats"
    if not top.is_dir() and is_overridden("TIDELAKE_RECORDED"):
        return []
    return sorted(path for path in top.iterdir() if path.is_dir())


def recorded_topics(capture: str, variant: str | None = None) -> dict[str, Path]:
    """The files of a recording, by topic."""
    return {
        path.name.removesuffix(".jsonl.zst"): path for path in sorted(recording(capture, variant).glob("*.jsonl.zst"))
    }


def recorded_lines(path: Path) -> Iterator[Mapping[str, Any]]:
    """The records of one topic, in its order. Lines end at \\n only: values hold U+2028."""
    with _open(path) as lines:
        for line in lines.read().split(b"\n"):
            if line:
                yield json.loads(line)


def recorded_bytes(line: Mapping[str, Any], name: str) -> bytes | None:
    """The `key` or `value` of a record."""
    if f"{name}_base64" in line:
        return None if line[f"{name}_base64"] is None else base64.b64decode(line[f"{name}_base64"])
    return None if line[name] is None else str(line[name]).encode()


def raw_lines(path: Path) -> list[bytes]:
    """The lines of one topic, undecoded and without their ends."""
    with _open(path) as lines:
        return [line for line in lines.read().split(b"\n") if line]


def recorded_truth(capture: str) -> dict[str, Any]:
    """`expected.json` of a capture: what the database itself held at the end."""
    return truth_in(recording(capture))


def truth_in(capture: Path) -> dict[str, Any]:
    """`expected.json` in the folder of a capture."""
    (path,) = capture.glob("expected.json*")
    with _open(path) as data:
        truth: dict[str, Any] = json.load(data)
    return truth


def _open(path: Path) -> BinaryIO:
    return zstandard.open(path, "rb") if path.suffix == ".zst" else path.open("rb")
