"""Checks a table: is everything there that its snapshots name, and does it fit together?

`verify(context)` gives what is wrong, `inspect(context)` the whole report. Nothing is changed.
"""

from __future__ import annotations

from storage.verify.finding import Finding, Severity
from storage.verify.inspection import Report, inspect, verify
from storage.verify.orphan_files import Orphans

__all__ = ["Finding", "Orphans", "Report", "Severity", "inspect", "verify"]
