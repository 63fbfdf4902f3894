"""`tidelake doctor`: checks whether a pipeline would run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tidelake.cli.arguments import Commands, add_config, command, finite
from tidelake.cli.exits import ExitCode, UsageError
from tidelake.cli.output import CommandOutput
from tidelake.storage.base import env

_MARKS: Final = {"ok": "✓", "warning": "⚠", "failed": "✗"}


def add_doctor(nouns: Commands) -> None:
    parser = command(
        nouns,
        "doctor",
        doctor,
        "check the machine, the source and the tables of a pipeline before it runs; changes nothing",
        "Each check has a time limit. A check that fails does not hide the others. Exit code 1 if one failed;\n"
        "warnings don't count. One object is written below the warehouse, and removed.\n\n"
        "With --chaos the pipeline also runs on a scratch warehouse, with the newest records of its source: once\n"
        "undisturbed, once with kills, take-overs, compactions and lost answers of the store. Both must end with the\n"
        "same rows.",
        example="tidelake doctor shop.yaml --chaos --minutes 5",
        log_level="error",  # a finding says the same
    )
    add_config(parser)
    parser.add_argument("--chaos", action="store_true", help="also disturb the pipeline on a scratch warehouse")
    parser.add_argument("--seed", type=int, metavar="N", help="with --chaos: the order of the disturbances")
    parser.add_argument(
        "--minutes", type=finite, metavar="M", help="with --chaos: how long it is disturbed; default: 1"
    )
    parser.add_argument(
        "--records", type=int, metavar="N", help="with --chaos: how many of the newest records; default: 20000"
    )


def doctor(
    out: CommandOutput,
    *,
    config: str,
    settings: Sequence[str],
    chaos: bool = False,
    seed: int | None = None,
    minutes: float | None = None,
    records: int | None = None,
) -> ExitCode:
    """Run all checks, or a trial. Returns FAILED if one failed."""
    if chaos:
        return _try(out, config, settings, seed, minutes, records)
    if (seed, minutes, records) != (None, None, None):
        raise UsageError("--seed, --minutes and --records need --chaos")
    return _check(out, config, settings)


def _check(out: CommandOutput, config: str, settings: Sequence[str]) -> ExitCode:
    import os

    from tidelake.cli.commands.ingest_run import run_command
    from tidelake.doctor.checks import Status, counted
    from tidelake.doctor.examination import examine

    results = examine(Path(config), settings, run_command(config, settings))
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
                remedy = "".join(f"\n   {line}" for line in finding.remedy.splitlines())
                out.text(f"{_MARKS[finding.status]}  {result.name}: {finding.found}{remedy}")
        warnings = counted(counts[Status.WARNING], "warning")
        out.text(f"{counts[Status.FAILED]} failed, {warnings}")
    if any(result.is_abandoned for result in results):
        out.close()
        os._exit(code)  # Python would wait for the threads of checks that give no answer
    return code


def _try(
    out: CommandOutput,
    config: str,
    settings: Sequence[str],
    seed: int | None,
    minutes: float | None,
    records: int | None,
) -> ExitCode:
    from tidelake.doctor.chaos.trial import run_trial

    minutes, records = 1.0 if minutes is None else minutes, 20_000 if records is None else records
    if minutes <= 0 or records < 1:
        raise UsageError("--minutes and --records must be positive")
    seed = env.random_below(1 << 31) if seed is None else seed
    trial = run_trial(Path(config), settings, seed=seed, seconds=minutes * 60, records=records, say=out.note)
    code = ExitCode.DONE if trial.is_sound else ExitCode.FAILED
    if out.is_json:
        out.document(
            {
                "sound": trial.is_sound,
                "seed": seed,
                "records": trial.records,
                "tables": [{"table": name, **asdict(finding)} for name, finding in trial.findings],
                "tried": dict(trial.tried),
                "kept": trial.kept,
            }
        )
        return code
    out.text("tried: " + ", ".join(f"{count:,} {what}" for what, count in trial.tried.items() if count))
    for name, finding in trial.findings:
        remedy = f"\n   {finding.remedy}" if finding.remedy else ""
        out.text(f"{_MARKS[finding.status]}  {name}: {finding.found}{remedy}")
    if trial.kept is not None:
        out.text(f"the scratch warehouse is kept: {trial.kept}")
        out.text(f"again: tidelake doctor {config} --chaos --seed {seed} --minutes {minutes:g} --records {records}")
    return code
