"""Tags that a table's options create and delete, after commits.

With a schedule, each day, hour or other period that is over gets a tag. A period is over when a snapshot is committed
after it, or when a watermark says so, and the delay has passed. That snapshot gets the tag of the last complete period.
With `tag.automatic-completion` it gets the tag of the first period without a tag, so that later snapshots fill the gap
one by one. With `tag.automatic-creation = batch`, batch writes create one tag per day, or always the same tag.

Tags whose retention has ended are deleted.

Source: Java `tag/TagAutoCreation.java`, `tag/TagTimeExtractor.java`, `tag/TagBatchCreation.java`,
`tag/TagTimeExpire.java`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from tidelake.errors import BadInput, SnapshotExpired
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.base.logs import get_logger
from tidelake.storage.maintenance.tag_changes import create_tag, delete_tag, replace_tag
from tidelake.storage.model.options.maintenance_options import TagCreation
from tidelake.storage.model.paths import parse_tag_name
from tidelake.storage.model.snapshots.snapshot import FIRST_SNAPSHOT_ID, Snapshot
from tidelake.storage.model.snapshots.tags import TagPeriod
from tidelake.storage.model.table import TableContext

_log = get_logger(__name__)

_PERIODIC: Final = (TagCreation.PROCESS_TIME, TagCreation.WATERMARK)
_NO_WATERMARK: Final = -(2**63)


class AutomaticTags:
    """The tag schedule of one branch. Reads each snapshot once. Not thread-safe.

    now_ms: wall clock.

    Raises BadInput for options that make no valid schedule.
    """

    name: Final = "automatic_tags"

    def __init__(self, context: TableContext, *, now_ms: Callable[[], int] = epoch_ms) -> None:
        options = context.options
        self._context = context
        self._now_ms = now_ms
        self._tags = context.tags
        self._by_watermark = options.tag_creation is TagCreation.WATERMARK
        self._zone = options.watermark_time_zone if self._by_watermark else options.process_time_zone
        self._period = TagPeriod.of(options)
        self._delay = timedelta(milliseconds=options.tag_creation_delay_ms)
        self._completes = options.tag_automatic_completion
        self._check_period(context.name)
        self._next: datetime | None = None  # the start of the first period without a tag
        self._next_snapshot: int | None = None  # the first that was not read yet; None: not known yet

    def _check_period(self, table_name: str) -> None:
        if not self._period.length:
            raise BadInput(f"{table_name}: option tag.creation-period-duration is 0; set a longer one, or unset it")
        if not self._delay < self._period.length:
            raise BadInput(
                f"{table_name}: option tag.creation-delay = {self._delay} is longer than the period of tags, "
                f"{self._period.length}; set a shorter one"
            )

    @staticmethod
    def is_enabled_for(context: TableContext) -> bool:
        return context.options.tag_creation in _PERIODIC

    def is_due(self, *, respect_interval: bool = True) -> bool:
        """Return whether a snapshot committed now may get a tag. Reads nothing.

        patient: has no effect.
        """
        if self._by_watermark or self._next_snapshot is None or self._next is None:
            return True
        now = self._local(self._now_ms())
        return now is None or self._is_period_over(self._next, now)

    def run(self) -> None:
        """Create the tags that are due. Raises OSError and CorruptFile; the next run continues there."""
        if self._next_snapshot is None:
            self._restore()
        store = self._context.snapshots
        while True:
            assert self._next_snapshot is not None
            snapshot = store.find(self._next_snapshot)
            if snapshot is not None:
                self._tag_if_due(snapshot)
                self._next_snapshot += 1
                continue
            earliest = store.earliest_id()
            if earliest is None or earliest <= self._next_snapshot:
                return
            self._next_snapshot = earliest

    # ------------------------------------------------------------ which period

    def _restore(self) -> None:
        """Continue after the last tag of the schedule."""
        for start, name in sorted(self._existing_tags(), reverse=True):
            try:
                self._next_snapshot = self._tags.get(name).id + 1
            except BadInput:  # another process deleted it
                continue
            self._next = start + self._period.length
            return
        self._next_snapshot = self._context.snapshots.earliest_id() or FIRST_SNAPSHOT_ID

    def _existing_tags(self) -> list[tuple[datetime, str]]:
        return [(start, name) for name in self._tags.names() if (start := self._period.time_of(name)) is not None]

    def _local(self, time_ms: int) -> datetime | None:
        """Return the local time. None if no calendar has that time, such as the watermark at the end of all input."""
        try:
            return datetime.fromtimestamp(time_ms / 1000, self._zone).replace(tzinfo=None)
        except (ValueError, OverflowError, OSError):
            return None

    def _is_period_over(self, start: datetime, time: datetime) -> bool:
        return time - self._delay >= start + self._period.length

    # ------------------------------------------------------------ tags

    def _tag_if_due(self, snapshot: Snapshot) -> None:
        time_ms = snapshot.watermark if self._by_watermark else snapshot.time_ms
        time = None if time_ms in (None, _NO_WATERMARK) else self._local(time_ms)
        if time is None or (self._next is not None and not self._is_period_over(self._next, time)):
            return
        start = self._period.last_complete(time)
        if self._completes and self._next is not None:
            start = self._next
        self._create(self._period.name_of(start), snapshot)
        self._next = start + self._period.length
        self._drop_oldest()

    def _create(self, name: str, snapshot: Snapshot) -> None:
        if name in self._tags.names():
            return
        retained_ms = self._context.options.tag_default_time_retained_ms
        try:
            retained = None if retained_ms is None else timedelta(milliseconds=retained_ms)
            create_tag(
                self._context, name, snapshot.id, retained, lambda: datetime.fromtimestamp(self._now_ms() / 1000)
            )
        except (BadInput, SnapshotExpired) as error:  # another process created it, or expired the snapshot
            _log.info("no automatic tag", table=self._context.name, tag=name, reason=str(error))
        else:
            _log.info("tagged", table=self._context.name, tag=name, snapshot=snapshot.id)

    def _drop_oldest(self) -> None:
        most = self._context.options.tag_num_retained_max
        if most is None:
            return
        by_snapshot: dict[int, list[str]] = {}
        for _, name in self._existing_tags():
            try:
                by_snapshot.setdefault(self._tags.get(name).id, []).append(name)
            except BadInput:
                continue
        for snapshot_id in sorted(by_snapshot)[: max(len(by_snapshot) - most, 0)]:
            for name in by_snapshot[snapshot_id]:
                delete_tag(self._context, name)


def tag_batch_write(context: TableContext, snapshot_id: int) -> None:
    """Tag the snapshot of a batch write.

    Raises nothing: the rows are committed, and the tag can be created manually.
    """
    options = context.options
    if options.tag_creation is not TagCreation.BATCH:
        return
    name = options.tag_batch_customized_name
    try:
        time = datetime.fromtimestamp(context.snapshots.get(snapshot_id).time_ms / 1000, options.process_time_zone)
        name = name or f"batch-write-{time:%Y-%m-%d}"
        retained_ms = options.tag_default_time_retained_ms
        retained = None if retained_ms is None else timedelta(milliseconds=retained_ms)
        make = replace_tag if name in context.tags.names() else create_tag
        make(context, name, snapshot_id, retained)
        _drop_oldest(context)
    except Exception as error:
        _log.warning("no tag of a batch write", table=context.name, tag=name, snapshot=snapshot_id, error=str(error))


def _drop_oldest(context: TableContext) -> None:
    """Delete the oldest tags beyond `tag.num-retained-max`, by snapshot id, then by creation time. All tags count."""
    most = context.options.tag_num_retained_max
    if most is None:
        return
    store = context.tags
    made_ms = {e.name: e.modified_ms for e in context.io.list_directory(context.paths.tag_directory)}
    ages: list[tuple[int, int, str]] = []
    for name in store.names():
        try:
            ages.append((store.get(name).id, made_ms.get(context.paths.tag(name).rpartition("/")[2], 0), name))
        except BadInput:  # another process deleted it
            continue
    for _, _, name in sorted(ages)[: max(len(ages) - most, 0)]:
        delete_tag(context, name)


_PAUSE_MS: Final = 60_000  # between two listings of the tags


class TagExpiry:
    """Tag expiry of one branch. Reads each tag once. Not thread-safe.

    now_ms: wall clock.
    """

    name: Final = "tag_expiry"

    def __init__(self, context: TableContext, *, now_ms: Callable[[], int] = epoch_ms) -> None:
        self._context = context
        self._now_ms = now_ms
        self._next_check_ms = now_ms() + _PAUSE_MS
        self._ends: dict[tuple[str, int], datetime | None] = {}  # by tag name and modification time of its file

    def is_due(self, *, respect_interval: bool = True) -> bool:
        return not respect_interval or self._now_ms() >= self._next_check_ms

    def run(self) -> None:
        now_ms = self._now_ms()
        self._next_check_ms = now_ms + _PAUSE_MS
        now = datetime.fromtimestamp(now_ms / 1000)
        found: dict[tuple[str, int], datetime | None] = {}
        for entry in self._context.io.list_directory(self._context.paths.tag_directory):
            name = None if entry.is_directory else parse_tag_name(entry.name)
            if name is None:
                continue
            key = name, entry.modified_ms
            try:
                end = found[key] = self._ends[key] if key in self._ends else self._end(name)
                if end is not None and end < now:
                    delete_tag(self._context, name)
            except BadInput:  # another process deleted it
                continue
        self._ends = found

    def _end(self, name: str) -> datetime | None:
        """Return the end of the tag's retention in local wall-clock time. None for a tag without a retention."""
        tag = self._context.tags.tag(name)
        return None if tag.created_at is None or tag.retained is None else tag.created_at + tag.retained
