"""Writes docs/conformance.md from JUnit reports of the tests that let others read our tables. See `make conformance`.

python docs/conformance.py build/conformance.xml …

A test that is in several reports counts as in the last one, so tests can be run again one by one.

The tests note each read down as a property (tests/support/conformance.py). This script only counts and arranges them.
"""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

DOCS: Final = Path(__file__).parent
PAGE: Final = DOCS / "conformance.md"
READERS: Final = ("Java", "pypaimon", "pypaimon-rust", "Spark's Parquet", "PyIceberg", "DuckDB")
OUTCOMES: Final = ("pass", "refused", "differs")  # from best to worst
_PROPERTY: Final = "conformance"
_FEW_TYPES: Final = 3
_WORDS: Final = {"pass": "✓", "refused": "refused", "differs": "differs"}
_INTRO: Final = """\
Who reads which of our tables, as the tests have seen it. Other programs read them in these tests, and their rows are
compared with ours, mostly also with a naive model of the table. This page is made from a run: `make conformance`."""
_LEGEND: Final = """\
- **✓**: the same rows. The link leads to the file of a test, and its title is the name of the case.
- **refused**: an error. **differs**: other rows. All of these are [below](#refused-or-different).
- **–**: no test.

A table has several properties at once. One of them counts as refused or different if this happened in most of its
cases; for a type the tables with few types count, if there are any. It may be that of a key, a partition or a value.
Spark reads the Parquet files themselves, so only append tables; PyIceberg and DuckDB read through
[Iceberg metadata](iceberg.md)."""
_OF_EXCEPTIONS: Final = """\
What other readers don't read as we do, and who is right. Java Paimon defines the format, and the naive model says what
the rows are: where Java and we agree with it, the other one is wrong."""
_OF_FACTS: Final = """\
Where Java's tables are not what one expects, [the facts](java-facts.md) say what Java does and what we do. For these
there is a golden table, which a test reads."""
_TYPES: Final = (
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "DECIMAL",
    "CHAR",
    "VARCHAR",
    "STRING",
    "BINARY",
    "VARBINARY",
    "BYTES",
    "DATE",
    "TIME",
)


@dataclass(frozen=True)
class Case:
    """What one reader made of one kind of table in one test: the worst outcome of its reads.

    path: of the test's file, from the root of the repository. test: its name, with parameters.
    """

    path: str
    test: str
    reader: str
    writer: str
    outcome: str
    engine: str
    formats: tuple[str, ...]
    types: tuple[str, ...]
    indexes: tuple[str, ...]
    buckets: str
    reason: str

    def link(self, text: str) -> str:
        return f'[{text}](../{self.path} "{title_of(self.test)}")'


def title_of(test: str) -> str:
    """Return the name of a test as the title of a link."""
    return test.replace('"', "'").replace("|", "/").replace("[", "(").replace("]", ")")


class TestsFailed(Exception):
    """The report has failed tests, so nobody knows what their reads are worth."""


def cases_of(*reports: Path) -> list[Case]:
    """Return the cases of JUnit reports, sorted. Raises TestsFailed."""
    worst: dict[tuple[Any, ...], Case] = {}
    failed = []
    tests = {}
    for report in reports:
        for test in ET.parse(report).getroot().iter("testcase"):
            tests[test.get("classname", "").replace(".", "/") + ".py", test.get("name", "")] = test
    for (path, name), test in tests.items():
        if test.find("failure") is not None or test.find("error") is not None:
            failed.append(f"{path}::{name}")
        for note in test.iter("property"):
            if note.get("name") == _PROPERTY:
                case = _case(path, name, json.loads(note.get("value", "")))
                key = (path, name, case.reader, case.writer, case.engine, case.formats, case.types, case.indexes)
                if key not in worst or OUTCOMES.index(case.outcome) > OUTCOMES.index(worst[key].outcome):
                    worst[key] = case
    if failed:
        raise TestsFailed("\n".join(["these tests failed, so the page is not written:", *failed]))
    return sorted(worst.values(), key=lambda case: (len(case.types), case.path, case.test, case.reader))


def _case(path: str, test: str, found: Mapping[str, Any]) -> Case:
    lists = {name: tuple(found[name]) for name in ("formats", "types", "indexes")}
    return Case(path, test, **{**found, **lists})


def page(cases: Sequence[Case], versions: Mapping[str, str]) -> str:
    """Return the page."""
    ours = [case for case in cases if case.writer == "Tidelake" and case.reader in READERS]
    readers = ", ".join(f"{name} {number}" for name, number in versions.items())
    tests = len({(case.path, case.test) for case in cases})
    parts = [
        "# Conformance",
        _INTRO,
        f"The run: {len(cases):,} combinations of reader and kind of table, in {tests:,} tests. Readers: {readers}.",
        _LEGEND,
        "## Engines",
        _grid("engine", ours, lambda case: [case.engine]),
        "## Formats",
        _grid("format", ours, lambda case: case.formats),
        "## Types",
        "By format where formats differ. pypaimon-rust is driven by pypaimon, without its fallback.",
        _types_grid(ours),
        "## Indexes and deletion vectors",
        _grid("index", ours, lambda case: case.indexes),
        "## Buckets",
        _grid("buckets", ours, lambda case: [case.buckets]),
        "## Tables of others",
        "Tables that Java and pypaimon wrote (`tests/golden`), and what we read: each snapshot, tag and branch.",
        _golden(cases),
        "## Refused or different",
        _OF_EXCEPTIONS,
        _exceptions(ours),
        "## Surprises in Java's tables",
        _OF_FACTS,
        _facts(cases),
    ]
    return "\n\n".join(parts) + "\n"


# ---------------------------------------------------------------- grids


def _verdict(cases: Sequence[Case]) -> tuple[str, Case] | None:
    """Return the outcome of most cases, and the first one with it; None without a case."""
    if not cases:
        return None
    failed = [case for case in cases if case.outcome != "pass"]
    if 2 * len(failed) <= len(cases):
        return "pass", next(case for case in cases if case.outcome == "pass")
    outcome = max(OUTCOMES, key=lambda one: sum(case.outcome == one for case in failed))
    return outcome, next(case for case in failed if case.outcome == outcome)


def _grid(title: str, cases: Sequence[Case], values_of: Callable[[Case], Iterable[str]]) -> str:
    found: defaultdict[str, list[Case]] = defaultdict(list)
    for case in cases:
        for value in values_of(case):
            found[value].append(case)
    lines = [f"| {title} | {' | '.join(READERS)} |", f"|---|{'---|' * len(READERS)}"]
    for value in sorted(found):
        cells = [_cell(_verdict([case for case in found[value] if case.reader == reader])) for reader in READERS]
        lines.append(f"| {value} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(verdict: tuple[str, Case] | None) -> str:
    return "–" if verdict is None else verdict[1].link(_WORDS[verdict[0]])


def _types_grid(cases: Sequence[Case]) -> str:
    lines = [f"| type | {' | '.join(READERS)} |", f"|---|{'---|' * len(READERS)}"]
    types = sorted({text for case in cases for text in case.types}, key=_order_of_type)
    for text in types:
        of_type = [case for case in cases if text in case.types]
        cells = [_cell_of_formats([case for case in of_type if case.reader == reader]) for reader in READERS]
        lines.append(f"| {text} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _order_of_type(text: str) -> tuple[int, str]:
    nested = text.isalpha() and text not in _TYPES  # after TIMESTAMP(n)
    return (_TYPES.index(text) if text in _TYPES else len(_TYPES) + nested, text)


def _cell_of_formats(cases: Sequence[Case]) -> str:
    """Return the outcome, for each format if they differ."""
    formats = sorted({one for case in cases for one in case.formats})
    verdicts = {one: _verdict(_narrow([case for case in cases if case.formats == (one,)])) for one in formats}
    known = {one: verdict for one, verdict in verdicts.items() if verdict is not None}
    if len({outcome for outcome, _ in known.values()}) <= 1:
        return _cell(next(iter(known.values()), _verdict(cases)))
    by_outcome: defaultdict[str, list[str]] = defaultdict(list)
    for one, (outcome, _) in known.items():
        by_outcome[outcome].append(one)
    return "; ".join(
        f"{known[of[0]][1].link(_WORDS[outcome])} {', '.join(of)}" for outcome, of in sorted(by_outcome.items())
    )


def _narrow(cases: Sequence[Case]) -> Sequence[Case]:
    """Return the cases of tables with few types, if there are any: in the others, another type may be the reason."""
    return [case for case in cases if len(case.types) <= _FEW_TYPES] or cases


# ---------------------------------------------------------------- lists


def _golden(cases: Sequence[Case]) -> str:
    lines = ["| written by | read | refused | |", "|---|---:|---:|---|"]
    for writer in ("Java", "pypaimon"):
        of = [case for case in cases if case.writer == writer and case.reader == "Tidelake"]
        refused = [case for case in of if case.outcome == "refused"]
        notes = ", ".join(f"{case.link(_parameter(case.test))}: {case.reason}" for case in refused)
        example = next(iter(case.link("a case") for case in of if case.outcome == "pass"), "–")
        lines.append(f"| {writer} | {len(of) - len(refused)} | {len(refused)} | {notes or example} |")
    return "\n".join(lines)


def _parameter(test: str) -> str:
    return test.partition("[")[2].removesuffix("]") or test


def _exceptions(cases: Sequence[Case]) -> str:
    """Return the reads that did not pass, by reader and reason."""
    groups: defaultdict[tuple[str, str, str], list[Case]] = defaultdict(list)
    for case in cases:
        if case.outcome != "pass":
            groups[case.reader, case.outcome, case.reason].append(case)
    if not groups:
        return "None."
    lines = ["| reader | | why | cases | right is |", "|---|---|---|---|---|"]
    ordered = sorted(groups.items(), key=lambda item: (READERS.index(item[0][0]), item[0]))
    for (reader, outcome, reason), found in ordered:
        shown = ", ".join(case.link(_escaped(_parameter(case.test))) for case in found[:3])
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        right = _right(reader, found, cases)
        lines.append(f"| {reader} | {outcome} | {_escaped(reason) or 'see the test'} | {shown}{more} | {right} |")
    return "\n".join(lines)


def _right(reader: str, found: Sequence[Case], cases: Sequence[Case]) -> str:
    tests = {(case.path, case.test) for case in found}
    beside = {case.reader for case in cases if (case.path, case.test) in tests and case.outcome == "pass"}
    agreeing = [one for one in ("Java", "pypaimon", "pypaimon-rust") if one in beside and one != reader]
    return " and ".join(["Tidelake", *agreeing[:1]])


def _facts(cases: Sequence[Case]) -> str:
    """Return the facts on Java that cite a golden table, each with its test."""
    golden = {_parameter(case.test): case for case in cases if case.writer != "Tidelake"}
    rows = [
        f"| {cells[0]} | {cells[2]} | {golden[name].link(name)} |"
        for cells in _rows_of_facts()
        for name in re.findall(r"golden `([\w/]+)`", " ".join(cells))
        if name in golden
    ]
    return "\n".join(["| subject | what Java does, and what we do | golden table |", "|---|---|---|", *rows])


def _rows_of_facts() -> Iterator[list[str]]:
    for line in (DOCS / "java-facts.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 4 and not cells[0].startswith("-"):
            yield cells


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("[", "(").replace("]", ")")


def _versions() -> dict[str, str]:
    """Return the releases of the readers: some are installed here, others have an environment of their own in tools."""
    return {
        "Java Paimon": _pinned("java-oracle/pom.xml", r"<paimon.version>(.*)</paimon.version>"),
        "pypaimon": _pinned("pypaimon/requirements.txt", r"pypaimon==(\S+)"),
        "pypaimon-rust": _pinned("pypaimon/requirements.txt", r"pypaimon-rust==(\S+)"),
        "Spark": version("pyspark"),
        "PyIceberg": version("pyiceberg"),
        "DuckDB": _pinned("duckdb-iceberg/requirements.txt", r"duckdb==(\S+)"),
    }


def _pinned(file: str, pattern: str) -> str:
    found = re.search(pattern, (DOCS.parent / "tools" / file).read_text(encoding="utf-8"))
    assert found is not None, file
    return found[1]


def main(*reports: str) -> None:
    try:
        cases = cases_of(*map(Path, reports))
    except TestsFailed as failed:
        sys.exit(str(failed))
    PAGE.write_text(page(cases, _versions()), encoding="utf-8")
    sys.stdout.write(f"{PAGE}: {len(cases):,} cases\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
