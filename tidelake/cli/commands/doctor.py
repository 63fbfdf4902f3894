"""`tidelake doctor`: checks whether a pipeline would run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tidelake.cli.arguments import Verbs, add_config, command
from tidelake.cli.exits import ExitCode
from tidelake.cli.output import CommandOutput

_MARKS: Final = {"ok": "✓", "warning": "⚠", "failed": "✗"}


def add_doctor(nouns: Verbs) -> None:
    parser = command(
        nouns,
        "doctor",
        doctor,
        "check the machine, the source and the tables of a pipeline before it runs; changes nothing",
        "Each check has a time limit. A check that fails does not hide the others. Exit code 1 if one failed;\n"
        "warnings don't count. One object is written below the warehouse, and removed.",
        log_level="error",  # a finding says the same
    )
    add_config(parser)


def doctor(out: CommandOutput, *, config: str, settings: Sequence[str]) -> ExitCode:
    """Run all checks. Returns FAILED if one failed."""
    import os

    from tidelake.doctor.checks import Status
    from tidelake.doctor.examination import examine

    results = examine(Path(config), settings)
    counts = {status: sum(f.status is status for r in results for f in r.findings) for status in Status}
    code = ExitCode.FAILED if counts[Status.FAILED] else ExitCode.DONE
    if out.is_json:
        checks: list[dict[str, Any]] = [
            {"check": r.name, "findings": [asdict(finding) for finding in r.findings]} for r in results
        ]
        out.document({"failed": counts[Status.FAILED], "warnings": counts[Status.WARNING], "checks": checks})
    else:
        for result in results:
            for finding in result.findings:
                remedy = f"\n   {finding.remedy}" if finding.remedy else ""
                out.text(f"{_MARKS[finding.status]}  {result.name}: {finding.found}{remedy}")
        out.text(f"{counts[Status.FAILED]} failed, {counts[Status.WARNING]} warnings")
    if any(result.is_abandoned for result in results):
        out.close()
        os._exit(code)  # Python would wait for the threads of checks that give no answer
    return code
