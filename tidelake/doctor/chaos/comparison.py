"""Compares a disturbed lake with an undisturbed one, table by table."""

from __future__ import annotations

from collections import Counter
from typing import Final

from tidelake.catalog import Catalog
from tidelake.doctor.chaos.scratch_lake import ScratchPipeline
from tidelake.doctor.checks import Finding, failed, ok
from tidelake.errors import TidelakeError
from tidelake.storage.maintenance.verify.changelog_check import check_changelog
from tidelake.storage.maintenance.verify.finding import Severity
from tidelake.table import Table
from tidelake.verification import inspect_table

_REMEDY: Final = "Keep the scratch warehouse, and report it with its seed: no configuration may lose or repeat a row"
_SHOWN: Final = 3


def compare(undisturbed: ScratchPipeline, disturbed: ScratchPipeline) -> list[tuple[str, Finding]]:
    """Return findings by the names of the tables: rows, changelog, and the soundness of the disturbed tables."""
    expected, found = Catalog(undisturbed.catalog()), Catalog(disturbed.catalog())
    names = set(undisturbed.table_names())
    there = set(disturbed.table_names())
    findings = []
    for name in sorted(names | there):
        if name not in names & there:
            which = "disturbed" if name in there else "undisturbed"
            findings.append((name, failed(f"only the {which} run created it", _REMEDY)))
            continue
        try:
            findings.append((name, _compared(expected.table(name), found.table(name))))
        except TidelakeError as error:
            findings.append((name, failed(f"can't be compared: {error}", _REMEDY)))
    return findings


def _compared(expected: Table, found: Table) -> Finding:
    # What level 0 keeps from readers would differ, as it depends on when compactions ran.
    for table in (expected, found):
        table.compact(full=True)
    wanted, there = _counted(expected), _counted(found)
    if wanted != there:
        missing, more = wanted - there, there - wanted
        rows = [f"missing {row}" for row in list(missing)[:_SHOWN]] + [f"too many {row}" for row in list(more)[:_SHOWN]]
        return failed(
            f"{missing.total():,} rows are missing and {more.total():,} are too many, for example {'; '.join(rows)}",
            _REMEDY,
        )
    said = f"the same {there.total():,} rows as without a disturbance"
    problems = [one for one in inspect_table(found, deep=True).findings if one.severity is not Severity.NOTE]
    if problems:
        return failed(f"{said}, but {problems[0].where}: {problems[0].what}", _REMEDY)
    if found.primary_key and found.context.snapshots.latest_id() is not None:
        report = check_changelog(found.context)
        if not report.is_sound:
            return failed(f"{said}, but {report.differing + report.ill_formed:,} keys have another changelog", _REMEDY)
        said += ", and its changelog leads to them"
    return ok(said)


def _counted(table: Table) -> Counter[str]:
    return Counter(repr(row) for row in table.scan().to_arrow().to_pylist())
