"""Keeps what is on its way to another key with the snapshots of the tables."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from checkpoint.moved_rows_state import MovedRowsState
from checkpoint.offsets import TopicPartition
from ingest.tables.moved_row_files import REPLACED_MAX
from ingest.tables.moved_rows import MovedRowsByTable
from ingest.tables.table_sink import TableSink


class MovedRowsStore:
    """sinks: all tables that exist, by name; it may grow. Methods block, but `properties`; call them between writes."""

    def __init__(self, sinks: Mapping[str, TableSink], moved: MovedRowsByTable) -> None:
        self._sinks = sinks
        self._moved = moved
        self._states: dict[str, MovedRowsState] = {}
        self._replaced: dict[str, deque[str]] = {}
        self._named: dict[str, Collection[str]] = {}  # of tables whose directory was not tidied up yet

    def begin(self, states: Mapping[str, MovedRowsState]) -> None:
        """What the tables' newest snapshots say; snapshots that are made before `restore` repeat it."""
        self._states = dict(states)

    def restore(self, named: Mapping[str, Collection[str]], decided: Collection[str]) -> None:
        """No other process commits any more: learn what is on its way.

        named: by table, files that its snapshots name. decided: tables whose position a person chose.
        """
        self._named = dict(named)
        for table, state in self._states.items():
            if state != MovedRowsState():
                files_of_table = self._sinks[table].moved_row_files
                files_of_table.read(state, self._moved.of(table), only_exact=table in decided)

    def properties(self, table: str) -> dict[str, str]:
        """For the table's next snapshot."""
        return self._states.get(table, MovedRowsState()).to_properties()

    def save(self, reached: Mapping[TopicPartition, int]) -> set[str]:
        """Make durable what is on its way. Returns the tables whose next snapshot says something new.

        reached: how far the source was read.
        """
        changed = set()
        for moved in self._moved.all():
            state = self._states.get(moved.table, MovedRowsState())
            moved.expire()
            moved.reached(reached)
            if moved.is_changed:
                files = self._sinks[moved.table].moved_row_files
                if (named := self._named.pop(moved.table, None)) is not None:
                    files.delete_unreferenced(
                        named
                    )  # what killed processes left; not at the start, where all tables would be listed
                new = files.write(moved)
                moved.is_changed = False
                if new.file is not None or state.file is not None:
                    changed.add(moved.table)
                if state.file is not None:
                    self._replaced.setdefault(moved.table, deque()).append(state.file)
                state = new
            self._states[moved.table] = replace(state, read_again=moved.read_again)
        return changed

    def committed(self, tables: Iterable[str]) -> None:
        """These have a snapshot that says what was saved last."""
        for table in tables:
            replaced = self._replaced.get(table, deque[str]())
            while len(replaced) > REPLACED_MAX:
                self._sinks[table].moved_row_files.delete(replaced.popleft())
