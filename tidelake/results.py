"""What calls return: snapshots, changes and their positions, units of a read, reports of what was done."""

from __future__ import annotations

from tidelake.compaction.jobs.file_index_rewrite import FileIndexRewrite
from tidelake.compaction.manifest_compaction import ManifestCompaction
from tidelake.compaction.report import CompactionReport
from tidelake.homes import give_home
from tidelake.materialized.refresh_result import Refreshed, RefreshKind
from tidelake.storage.commit.expire.expire_now import ExpiryResult
from tidelake.storage.maintenance.analysis.analyze import TableStatistics
from tidelake.storage.maintenance.orphans import OrphanCleaning
from tidelake.storage.maintenance.rollback import LaterStates
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.read.changes.change_reader import ChangeBatch
from tidelake.storage.read.changes.position import ChangePosition
from tidelake.storage.read.explain import ExplainedFile
from tidelake.storage.read.follow import Follower
from tidelake.storage.read.shares import SplitGroup
from tidelake.storage.read.split import Split

__all__ = [
    "ChangeBatch",
    "ChangePosition",
    "CompactionReport",
    "ExpiryResult",
    "ExplainedFile",
    "FileIndexRewrite",
    "Follower",
    "LaterStates",
    "ManifestCompaction",
    "OrphanCleaning",
    "RefreshKind",
    "Refreshed",
    "Snapshot",
    "Split",
    "SplitGroup",
    "TableStatistics",
]

give_home(__name__, __all__, globals())
