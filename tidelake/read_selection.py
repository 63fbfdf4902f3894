"""What a read names: a state of the table, or an increment, which is the changes between two states."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial

from tidelake.errors import BadInput
from tidelake.storage.commit.manifests.snapshot_files import prefetch_lists
from tidelake.storage.kinds.system_tables.system_table import SystemTableRead
from tidelake.storage.model.option_support import check_supported
from tidelake.storage.model.options import Operation
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.fallback_branch import fallback_branch, refuse_fallback_branch
from tidelake.storage.read.incremental_read import (
    NO_INCREMENT,
    Increment,
    NoIncrement,
    increment_between,
    increment_of,
    increment_to_auto_tag,
    is_incremental,
    parse_scan_mode,
)
from tidelake.storage.read.time_travel import TimeTravel, named_state


@dataclass(frozen=True, slots=True)
class ReadSelection:
    """The arguments of a read, as `Table.scan` describes them. If all are None, the table's options decide."""

    snapshot: int | None = None
    tag: str | None = None
    as_of: datetime | int | None = None
    between: tuple[int | str | datetime, ...] | None = None
    between_mode: str | None = None
    auto_tag: str | None = None

    def read(self, context: TableContext) -> SystemTableRead:
        """Return what to read, and the table with the schema to read it with."""
        selectors = (self.snapshot, self.tag, self.as_of, self.between, self.auto_tag)
        if sum(selector is not None for selector in selectors) > 1:
            raise BadInput("scan() takes at most one of snapshot, tag, as_of, between and auto_tag")
        if (increment := self.increment(context)) is NO_INCREMENT:
            return self._state(context)
        refuse_fallback_branch(context, "a read of the changes in a range")
        return SystemTableRead(context, None, increment=increment)

    def increment(self, context: TableContext) -> Increment | NoIncrement:
        """Return the increment that the arguments or the options name; NO_INCREMENT if they name a state."""
        if self.between is not None:
            mode = None if self.between_mode is None else parse_scan_mode(self.between_mode)
            return increment_between(context, self.between, mode)
        if self.between_mode is not None:
            raise BadInput(f"between_mode={self.between_mode!r} needs between=, the range to read")
        if self.auto_tag is not None:
            return increment_to_auto_tag(context, self.auto_tag)
        if not self._names_a_state and is_incremental(context):
            check_supported(context, Operation.READ)
            return increment_of(context)
        return NO_INCREMENT

    @property
    def _names_a_state(self) -> bool:
        return (self.snapshot, self.tag, self.as_of) != (None, None, None)

    def _state(self, context: TableContext) -> SystemTableRead:
        travel = TimeTravel() if self._names_a_state else TimeTravel.of(context)
        snapshot_id = travel.snapshot_id if self.snapshot is None else self.snapshot
        tag = travel.tag if self.tag is None else self.tag
        as_of = travel.as_of_ms if self.as_of is None else self.as_of
        found = named_state(context, snapshot_id, tag, as_of)
        # After the read, so that the result is certainly of this table.
        prefetch_lists(context, found, beside=partial(context.identity.check_before_read, found))
        read_with = context
        if found is not None and (snapshot_id, tag, as_of) != (None, None, None):
            read_with = context.with_schema(context.schemas.get(found.schema_id))
        other = fallback_branch(
            read_with, found, snapshot_id=snapshot_id, tag=tag, as_of=as_of, files_since_ms=travel.files_since_ms
        )
        return SystemTableRead(read_with, found, other, files_since_ms=travel.files_since_ms)
