"""Checks a table: do all files exist that its snapshots name, and are they consistent?

`verify(context)` returns the problems, `inspect(context)` the whole report. Both change nothing.
"""

from __future__ import annotations

from tidelake.storage.maintenance.verify.finding import Finding, Severity
from tidelake.storage.maintenance.verify.inspection import Report, inspect, verify
from tidelake.storage.maintenance.verify.orphan_files import Orphans

__all__ = ["Finding", "Orphans", "Report", "Severity", "inspect", "verify"]
