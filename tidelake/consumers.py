"""The consumers of a table: readers whose positions it keeps, and whose snapshots do not expire."""

from __future__ import annotations

from dataclasses import dataclass

from tidelake.errors import BadInput
from tidelake.storage.base.arguments import checked
from tidelake.storage.model.snapshots.consumers import Consumer, consumer_names
from tidelake.table import Table


@dataclass(frozen=True, slots=True)
class ConsumerPosition:
    """A consumer and its position.

    next_snapshot_id: the first snapshot that it has not read yet
    behind: number of snapshots that it has not read yet
    """

    name: str
    next_snapshot_id: int
    behind: int


class TableConsumers:
    """The consumers of one table: `TableConsumers(catalog.table("shop.orders")).list()`."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._context = table.context

    def list(self) -> list[ConsumerPosition]:
        """Return all consumers, sorted by name. Raises CorruptFile for a damaged consumer file."""
        newest = self._context.snapshots.latest_id() or 0
        found = []
        for name in consumer_names(self._context.io, self._context.paths):
            at = self._consumer(name).next_snapshot_id()
            if at is not None:  # otherwise deleted meanwhile
                found.append(ConsumerPosition(name, at, max(0, newest + 1 - at)))
        return found

    @checked
    def reset(self, name: str, next_snapshot_id: int) -> None:
        """Set a consumer to this snapshot; creates it if it does not exist. Stop its readers first.

        Raises BadInput for a snapshot that neither exists nor is the next one.
        """
        consumer, snapshots = self._consumer(name), self._context.snapshots
        newest = snapshots.latest_id() or 0
        if next_snapshot_id != newest + 1 and self._context.history.find(next_snapshot_id) is None:
            earliest = snapshots.earliest_id()
            available = "no snapshot" if earliest is None else f"snapshots {earliest} to {newest}"
            raise BadInput(
                f"{self._table.name} has no snapshot {next_snapshot_id}; it has {available}. Name one of them, or "
                f"{newest + 1} to read only new snapshots"
            )
        consumer.write(next_snapshot_id)

    @checked
    def delete(self, name: str) -> None:
        """Delete a consumer. Its snapshots can then expire. Raises BadInput if it does not exist."""
        consumer = self._consumer(name)
        if consumer.read() is None:
            available = ", ".join(one.name for one in self.list()) or "none"
            raise BadInput(f"{self._table.name} has no consumer {name!r}; its consumers are: {available}")
        consumer.forget()

    def _consumer(self, name: str) -> Consumer:
        return Consumer(self._context.io, self._context.paths, name)
