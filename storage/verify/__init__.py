"""Checks a table: do all files exist that its snapshots name, and are they consistent?

`verify(context)` returns the problems, `inspect(context)` the whole report. Both change nothing.
"""

from __future__ import annotations

from storage.verify.finding import Finding, Severity
from storage.verify.inspection import Report, inspect, verify
from storage.verify.orphan_files import Orphans

__all__ = ["Finding", "Orphans", "Report", "Severity", "inspect", "verify"]
