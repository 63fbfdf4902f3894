"""The snapshots whose changes a read names: from a first to a last one, or between two states."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidelake.errors import BadInput
from tidelake.read_selection import ReadSelection
from tidelake.storage.base.arguments import INT64_MAX, check_whole_number
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.changes.change_reader import ChangeBatch, ChangeReader
from tidelake.storage.read.changes.subtask import Subtask
from tidelake.storage.read.incremental_read import NO_INCREMENT, is_incremental, read_increment


@dataclass(frozen=True, slots=True)
class ChangeRange:
    """The arguments of a read of changes, as `Table.changes` describes them.

    start, end: ids of the first and of the last snapshot. An end of None is the latest.
    named: the range by other names. If it names none, and there is no start, the table's options decide.
    """

    start: int | None
    end: int | None
    named: ReadSelection

    def read(self, context: TableContext, *, sequence_numbers: bool) -> Iterator[ChangeBatch]:
        """Read the changes.

        sequence_numbers: whether the rows come with `_SEQUENCE_NUMBER`

        Raises BadInput for a range that is not named, is named twice, or does not exist yet; SnapshotExpired if one of
        its snapshots has expired, at once or while reading.
        """
        if self.start is None and self.end is None:
            if (increment := self.named.increment(context)) is NO_INCREMENT:
                raise BadInput("changes() needs start=, the first snapshot whose changes to read, or between=")
            return read_increment(context, increment)
        if self.named != ReadSelection() or is_incremental(context):
            raise BadInput(
                f"changes(start={self.start}, end={self.end}), but between, auto_tag or an option such as "
                "incremental-between names the range, too; leave start and end out, or unset the option"
            )
        if self.start is None:
            raise BadInput("changes() needs start=, the first snapshot whose changes to read")
        return _changes_of(context, self.start, self.end, sequence_numbers=sequence_numbers)


def _changes_of(context: TableContext, start: int, end: int | None, *, sequence_numbers: bool) -> Iterator[ChangeBatch]:
    for name, number in (("start", start), ("end", start if end is None else end)):
        check_whole_number(f"changes({name}=…)", number, at_least=-INT64_MAX)
    if start < 1 or (end is not None and end < start):
        raise BadInput(f"changes(start={start}, end={end}): snapshot ids start at 1, and end must not be before start")
    reader = ChangeReader(context, Subtask.of(context.options), sequence_numbers=sequence_numbers)
    latest = reader.history.latest_id() or 0
    if start > latest + 1:
        reader.get(start)  # raises
    if end is not None and end > latest:
        reader.get(end)
    return reader.read_range(start, latest if end is None else end)
