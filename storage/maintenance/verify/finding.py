"""The findings of an inspection of a table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Severity(StrEnum):
    """The severity of a finding.

    PROBLEM: a reader or writer may fail or give wrong results.
    NOTE: worth knowing; it has an explanation.
    """

    PROBLEM = "problem"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    check: a short name for programs, as `file-missing`.
    where: a snapshot, a file, a bucket.
    what: one sentence.
    remedy: what a person can do.
    """

    check: str
    where: str
    what: str
    remedy: str
    severity: Severity = Severity.PROBLEM

    def __str__(self) -> str:
        return f"{self.where}: {self.what}. {self.remedy}"


RESTORE: Final = (
    "Restore the file from a backup if there is one; otherwise roll back to a snapshot or tag that does not need it"
)
REPORT: Final = "The writer has a bug, or wrote at the same time as another one: keep the table as it is and report it"
ROLL_BACK: Final = "Roll back to the last snapshot before it, and write the later rows again"
