"""Java makes tags, branches and rollbacks in any order between writes of both. Our expiry on one branch never removes
files that Java or Tidelake can still read on another branch.

Java's own expiry is not among the steps: it looks at no branch (`test_expiry` compares the two).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, example, given, note, settings
from hypothesis import strategies as st

import tidelake
from tests.support.java_oracle import JavaOracle
from tests.support.levels import examples
from tidelake.storage.commit.expire.expire_now import expire_now
from tidelake.storage.maintenance.verify import verify
from tidelake.storage.model.format import DEFAULT_BRANCH
from tidelake.storage.model.snapshots.change_history import ChangelogStore
from tidelake.storage.model.table import TableContext

NAME: Final = "db.t"
COLUMNS: Final = pa.schema([pa.field("k", pa.int32(), nullable=False), pa.field("v", pa.string())])
KEYS: Final = 4
BRANCHES_MAX: Final = 2

Rows = dict[int, str]


@dataclass(frozen=True)
class State:
    """rows: of the table at it. written: by its commit."""

    rows: Rows
    written: Rows


@dataclass
class Line:
    """What must be readable of a branch. changelogs: snapshots that expired and whose changes did not."""

    states: dict[int, State] = field(default_factory=dict)
    tags: dict[str, tuple[int, State]] = field(default_factory=dict)
    changelogs: dict[int, State] = field(default_factory=dict)
    begins_with: int = 1
    """Of older states the changes may have expired before the branch was made."""


class Life:
    def __init__(self, java: JavaOracle, warehouse: Path, producer: str) -> None:
        self._java = java
        self._warehouse = warehouse
        catalog = tidelake.open_catalog(str(warehouse))
        catalog.create_database("db")
        options = {"bucket": "1", "write-only": "true", "changelog-producer": producer, "manifest.merge-min-count": "3"}
        catalog.create_table(NAME, COLUMNS, primary_key=["k"], options=options)
        self.lines = {DEFAULT_BRANCH: Line()}
        self._writes = 0

    @property
    def main(self) -> Line:
        return self.lines[DEFAULT_BRANCH]

    def table(self, branch: str) -> tidelake.Table:
        return tidelake.open_catalog(str(self._warehouse)).table(full_name(branch))

    # ------------------------------------------------------------ steps

    def we_write(self, branch: str, number: int) -> None:
        rows = self._new_rows(number)
        with self.table(branch).writer() as writer:
            writer.write(pa.table({"k": pa.array(rows, pa.int32()), "v": list(rows.values())}))
            snapshot_id = writer.commit()
        self._note(branch, snapshot_id, rows)

    def java_writes(self, branch: str, number: int) -> None:
        rows = self._new_rows(number)
        on = None if branch == DEFAULT_BRANCH else branch
        java_rows = [{"k": k, "v": v} for k, v in rows.items()]
        snapshot_id = self._java.write(self._warehouse, NAME, java_rows, branch=on)
        self._note(branch, self.table(branch).snapshots()[-1].id if on else snapshot_id, rows)

    def we_compact(self, branch: str, number: int) -> None:
        if self.lines[branch].states:
            self.table(branch).compact(full=True)
            self._note_compaction(branch)

    def java_compacts(self, branch: str, number: int) -> None:
        if self.lines[branch].states:
            self._java.compact(self._warehouse, full_name(branch), full=True)
            self._note_compaction(branch)

    def we_expire(self, branch: str, number: int) -> None:
        least, more = number % 3 + 1, number // 3 % 3
        line, context = self.lines[branch], self.table(branch).context
        options = {
            "snapshot.num-retained.min": str(least),
            "snapshot.num-retained.max": str(least),
            "snapshot.time-retained": "0 s",
            "changelog.num-retained.min": str(least + more),
            "changelog.num-retained.max": str(least + more),
            "changelog.time-retained": "0 s",
        }
        expire_now(TableContext.open(context.io, context.location, context.name, branch=branch, options=options))
        there = context.snapshots.ids()
        kept = sorted(line.states)[-least:]
        assert set(kept) <= set(there)
        line.changelogs |= {i: state for i, state in line.states.items() if i not in there}
        line.states = {i: state for i, state in line.states.items() if i in there}
        changelogs = ChangelogStore(context.io, context.paths).ids() if more else []
        line.changelogs = {i: state for i, state in line.changelogs.items() if i in changelogs}
        if line.states and more:
            first = max(line.states) - least - more + 1
            assert {i for i in line.changelogs if i >= first} <= set(changelogs)

    def java_tags(self, branch: str, number: int) -> None:
        """On main."""
        if self.main.states:
            snapshot_id = sorted(self.main.states)[number % len(self.main.states)]
            name = f"t{number}-{self._writes}"
            if name not in self.main.tags:
                self._java.tag(self._warehouse, NAME, name, snapshot=snapshot_id)
                self.main.tags[name] = (snapshot_id, self.main.states[snapshot_id])

    def java_deletes_a_tag(self, branch: str, number: int) -> None:
        """Of a snapshot that is there: else Java deletes files, and looks at no branch."""
        line = self.lines[branch]
        names = [name for name, (snapshot_id, _) in line.tags.items() if snapshot_id in line.states]
        if names:
            name = names[number % len(names)]
            self._java.step(self._warehouse, full_name(branch), {"op": "deleteTag", "name": name})
            del line.tags[name]

    def java_branches(self, branch: str, number: int) -> None:
        """From a tag of main, or empty."""
        if len(self.lines) > BRANCHES_MAX:
            return
        name, tags = f"b{len(self.lines)}", sorted(self.main.tags)
        if not tags:
            self._java.branch(self._warehouse, NAME, name)
            self.lines[name] = Line()
            return
        tag = tags[number % len(tags)]
        snapshot_id, state = self.main.tags[tag]
        self._java.branch(self._warehouse, NAME, name, tag=tag)
        has_changes = snapshot_id in self.main.states or snapshot_id in self.main.changelogs
        begins_with = snapshot_id if has_changes else snapshot_id + 1
        self.lines[name] = Line({snapshot_id: state}, {tag: (snapshot_id, state)}, begins_with=begins_with)

    def java_rolls_back(self, branch: str, number: int) -> None:
        """Main, to one of its snapshots."""
        if self.main.states:
            snapshot_id = sorted(self.main.states)[number % len(self.main.states)]
            self._java.rollback(self._warehouse, NAME, snapshot=snapshot_id)
            self._cut_main(snapshot_id)

    def java_rolls_back_to_a_tag(self, branch: str, number: int) -> None:
        names = sorted(self.main.tags)
        if names:
            name = names[number % len(names)]
            snapshot_id, state = self.main.tags[name]
            self._java.rollback(self._warehouse, NAME, tag=name)
            self._cut_main(snapshot_id)
            if snapshot_id not in self.main.states:
                self.main.states[snapshot_id] = state
                self.main.begins_with = snapshot_id + 1

    # ------------------------------------------------------------ what must hold

    def check_ours(self) -> None:
        for branch, line in self.lines.items():
            table = self.table(branch)
            for snapshot_id, state in line.states.items():
                assert rows_of(table.scan(snapshot=snapshot_id)) == state.rows, (branch, snapshot_id)
            for tag, (_, state) in line.tags.items():
                assert rows_of(table.scan(tag=tag)) == state.rows, (branch, tag)
            for snapshot_id, state in (line.states | line.changelogs).items():
                if snapshot_id >= line.begins_with:
                    changes = list(table.changes(start=snapshot_id, end=snapshot_id))
                    reported = Counter((row["k"], row["v"]) for change in changes for row in change.rows.to_pylist())
                    assert reported == Counter(state.written.items()), (branch, snapshot_id)
        assert verify(self.table(DEFAULT_BRANCH).context) == []

    def check_javas(self) -> None:
        for branch, line in self.lines.items():
            name = full_name(branch)
            for snapshot_id, state in line.states.items():
                found = self._java.read(self._warehouse, name, snapshot=snapshot_id)
                assert {row["k"]: row["v"] for row in found} == state.rows, (branch, snapshot_id)
            for tag, (_, state) in self.main.tags.items() if branch == DEFAULT_BRANCH else ():
                found = self._java.read(self._warehouse, name, tag=tag)  # reading a branch, it knows main's tags only
                assert {row["k"]: row["v"] for row in found} == state.rows, (branch, tag)

    # ------------------------------------------------------------ small things

    def _new_rows(self, number: int) -> Rows:
        self._writes += 1
        return {(number + step) % KEYS: f"{self._writes}.{step}" for step in range(1 + number % 2)}

    def _note(self, branch: str, snapshot_id: int | None, rows: Rows) -> None:
        assert snapshot_id is not None
        line = self.lines[branch]
        before = line.states[max(line.states)].rows if line.states else {}
        line.states[snapshot_id] = State(before | rows, rows)

    def _note_compaction(self, branch: str) -> None:
        """A snapshot or two, or none."""
        line = self.lines[branch]
        newest = max(line.states)
        for snapshot in self.table(branch).snapshots():
            if snapshot.id > newest:
                line.states[snapshot.id] = State(line.states[newest].rows, {})

    def _cut_main(self, last: int) -> None:
        main = self.main
        main.states = {i: state for i, state in main.states.items() if i <= last}
        main.changelogs = {i: state for i, state in main.changelogs.items() if i <= last}
        main.tags = {name: tag for name, tag in main.tags.items() if tag[0] <= last}


def full_name(branch: str) -> str:
    return NAME if branch == DEFAULT_BRANCH else f"{NAME}$branch_{branch}"


def rows_of(scan: tidelake.Scan) -> Rows:
    return {row["k"]: row["v"] for row in scan.to_arrow().to_pylist()}


Step = Callable[[Life, str, int], None]
STEPS: Final[list[Step]] = [
    *[Life.we_write, Life.java_writes, Life.we_expire] * 2,
    *[Life.we_compact, Life.java_compacts],
    *[Life.java_tags, Life.java_branches],
    *[Life.java_deletes_a_tag] * 2,
    *[Life.java_rolls_back, Life.java_rolls_back_to_a_tag],
]
MAIN: Final = 0
BRANCH: Final = 1
FIRST: Final[list[tuple[Step, int, int]]] = [
    (Life.we_write, MAIN, 0),
    (Life.java_tags, MAIN, 0),
    (Life.java_branches, MAIN, 0),
]


def let_go_of_the_beginning(side: int) -> list[tuple[Step, int, int]]:
    """Of the snapshot that main and the branch share."""
    steps = [Life.java_deletes_a_tag, Life.java_writes, Life.we_compact, Life.we_write, Life.java_compacts]
    return [*((step, side, 0) for step in steps), (Life.we_expire, side, 0), (Life.we_expire, side, 3)]


@pytest.mark.parametrize("producer", ["none", "input"])
def test_after_our_expiry_all_states_referenced_by_java_are_readable_by_both(
    producer: str, java_oracle: JavaOracle, tmp_path_factory: pytest.TempPathFactory
) -> None:
    @given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 8), st.integers(0, 8)), min_size=6, max_size=16))
    @example(let_go_of_the_beginning(MAIN))
    @example(let_go_of_the_beginning(BRANCH))
    @settings(
        max_examples=examples(10), phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck)
    )
    def check(steps: list[tuple[Step, int, int]]) -> None:
        life = Life(java_oracle, tmp_path_factory.mktemp("lake"), producer)
        for step, at, number in [*FIRST, *steps]:
            branch = [*life.lines][at % len(life.lines)]
            note(f"{branch}: {step.__name__} {number}")
            step(life, branch, number)
            life.check_ours()
        life.check_javas()

    check()
