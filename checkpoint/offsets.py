"""Source positions: how far a table has read its source, and the text that says so in its snapshots.

A position is a half-open range of offsets for each topic partition. An end is always a *next offset*: the offset to
read next, never the last one read. Gaps inside a range are normal (compacted topics, transaction markers). A range says
that the rows come from no record outside of it, and that no record inside it is missing.

Text of version 1 is one line of JSON; `docs/positions.md` shows it. Version 2 is the same line, compressed: otherwise a
position of many topics would be larger than the rest of the snapshot file. Both stay on disk forever. So a reader
refuses a version that it doesn't know, and the meaning of a key never changes.

The text of a long position is complete, too. It includes the topics that never had a record for the table. The
positions of other tables could replace these entries only while all tables are as the pipeline left them. A table that
was rolled back, restored or copied would skip the records of its lost snapshots, and retention could delete records
past its position undetected.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby, pairwise
from typing import Any, Final, NamedTuple, TypeAlias

from tidelake.errors import BadInput, CorruptFile, UnsupportedFeature

POSITION_PROPERTY: Final = "tidelake.position"  # key in Snapshot.properties
POSITION_VERSION: Final = 1
PACKED_VERSION: Final = 2
PACKED_FROM: Final = 2_048  # characters; shorter positions stay readable
CHAIN_BREAK: Final = "hole"  # stored in `RecoveryDecision.accepted_problems`: never change it

_UNPACKED_MAX: Final = 64 << 20  # bytes; a position of a million partitions is less

# Equal consecutive numbers are written as `[number, count]`: of 1,000 partitions most are idle at any one time.
_SHORTEST_RUN: Final = 3
_Runs: TypeAlias = list[int | list[int]]


class TopicPartition(NamedTuple):
    """One ordered log of a source."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetRange(NamedTuple):
    """Offsets [start, end) of one topic partition."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SourceIdentity:
    """The log that offsets refer to. In another cluster, or in a new topic, the same offset is another record.

    cluster_id: None if the source has none.
    topic_ids: the id of each topic. Topics whose id the broker doesn't report are absent.
    """

    cluster_id: str | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RecoveryDecision:
    """The decision of an operator after a refusal.

    flag: the command's option and its argument, for example `--accept-gap shop.orders`.
    accepted_problems: the problems that were accepted, as values of
    `tidelake.checkpoint.position_problems.ProblemKind`.
    """

    flag: str
    accepted_problems: Sequence[str] = ()


@dataclass(frozen=True)
class SourcePosition:
    """The position of one snapshot of a pipeline in its source. Immutable.

    Hundreds of tables may share one position of hundreds of partitions. So what is derived from it is kept.

    identity: the log that the offsets refer to.
    ranges: every partition that was ever read for the table, also partitions without new records (start == end).
    accepted: the decision why the position doesn't start where the previous one ended; usually None.

    Raises BadInput for a range that ends before it starts, or starts below 0.
    """

    identity: SourceIdentity = field(default_factory=SourceIdentity)
    ranges: Mapping[TopicPartition, OffsetRange] = field(default_factory=dict)
    accepted: RecoveryDecision | None = None

    def __post_init__(self) -> None:
        for partition, (start, end) in self.ranges.items():
            if not 0 <= start <= end:
                raise BadInput(f"{partition}: [{start}, {end}) is not a range of offsets")

    @cached_property
    def ends(self) -> Mapping[TopicPartition, int]:
        """The next offset of each partition."""
        return {partition: end for partition, (_, end) in self.ranges.items()}

    @cached_property
    def text(self) -> str:
        """The position as it stands in snapshots."""
        return position_to_text(self)

    def with_partitions(self, starts: Mapping[TopicPartition, int]) -> SourcePosition:
        """Return the same position with additional partitions. Their reading begins at the given offsets."""
        new = {partition: OffsetRange(at, at) for partition, at in starts.items() if partition not in self.ranges}
        return replace(self, ranges={**self.ranges, **new}) if new else self

    def advanced_to(self, reached: Mapping[TopicPartition, int]) -> SourcePosition:
        """Return the position of the next snapshot: it starts where this one ends, and ends at `reached`.

        A partition that `reached` lacks keeps its end. So does one whose offset in `reached` is below our end, because
        it is read again after a restart. Other partitions in `reached` belong to other tables.
        """
        ranges = {p: OffsetRange(end, max(end, reached.get(p, end))) for p, end in self.ends.items()}
        return replace(self, ranges=ranges, accepted=None)

    def extended_to(self, reached: Mapping[TopicPartition, int]) -> SourcePosition:
        """Return the same position with each range extended to `reached`, if that is further. The starts are kept."""
        ranges = {p: OffsetRange(start, max(end, reached.get(p, end))) for p, (start, end) in self.ranges.items()}
        return replace(self, ranges=ranges)

    def assuming_identity(self, identity: SourceIdentity) -> SourcePosition:
        """Return the same offsets, interpreted as offsets of the current source."""
        return replace(self, identity=SourceIdentity()).with_identity(identity)

    def with_identity(self, identity: SourceIdentity) -> SourcePosition:
        """Return the same ranges with the source's current identity. Only ids of this position's topics are kept."""
        topics = {partition.topic for partition in self.ranges}
        known = {**self.identity.topic_ids, **identity.topic_ids}
        ids = {topic: id_ for topic, id_ in known.items() if topic in topics}
        return replace(self, identity=SourceIdentity(identity.cluster_id, ids))


@dataclass(frozen=True, slots=True)
class ChainBreak:
    """Two consecutive snapshots whose positions do not join.

    before: commit identifier of the first snapshot.
    after: commit identifier of the second snapshot.
    reason: one sentence.
    accepted: the decision that accepted the break; None for a break that was never accepted.
    """

    before: int
    after: int
    reason: str
    accepted: RecoveryDecision | None = None


def chain_breaks(
    history: Iterable[tuple[int, SourcePosition]], table_ends: Mapping[int, Mapping[TopicPartition, int]] | None = None
) -> list[ChainBreak]:
    """Return the gaps and overlaps in a history: places where start(n+1) != end(n).

    history: (commit identifier, position) of one commit user's snapshots, oldest first. One identifier may have two
        snapshots (APPEND, then COMPACT) with the same position
    table_ends: for each identifier, the next offset of each partition in the table, over all commit users. A commit
        user whose positions are those of the whole table may continue there
    """
    breaks: list[ChainBreak] = []
    later: RecoveryDecision | None = None  # of a later snapshot; it accepts older chain breaks, too
    for (before, first), (after, second) in reversed(list(pairwise(history))):
        if second.accepted is not None and CHAIN_BREAK in second.accepted.accepted_problems:
            later = second.accepted
        ends = (table_ends or {}).get(after, {})
        reasons = _disagreements(first, second, ends, same_checkpoint=before == after)
        breaks += [ChainBreak(before, after, reason, second.accepted or later) for reason in reversed(reasons)]
    return breaks[::-1]


def _disagreements(
    before: SourcePosition,
    after: SourcePosition,
    table_ends: Mapping[TopicPartition, int],
    *,
    same_checkpoint: bool,
) -> list[str]:
    if same_checkpoint:
        return [] if before == after else ["two snapshots of one identifier have different positions"]
    reasons = identity_changes(before.identity, after.identity)
    for partition, (_, end) in sorted(before.ranges.items()):
        following = after.ranges.get(partition)
        if following is None:
            reasons.append(f"{partition} is missing; it was read up to {end}")
        elif following.start not in (end, table_ends.get(partition)):
            how = "a gap" if following.start > end else "an overlap"
            reasons.append(f"{partition} continues at {following.start} instead of {end}: {how}")
    return reasons


def identity_changes(before: SourceIdentity, after: SourceIdentity) -> list[str]:
    """Return the differences that make offsets of one identity meaningless for the other, one sentence each.

    An id that one of the identities lacks is not compared.
    """
    changes = []
    if None not in (before.cluster_id, after.cluster_id) and before.cluster_id != after.cluster_id:
        changes.append(f"the cluster is {after.cluster_id}, not {before.cluster_id}")
    changes += [
        f"topic {topic} has id {after.topic_ids[topic]}, not {id_}: it was created again"
        for topic, id_ in sorted(before.topic_ids.items())
        if after.topic_ids.get(topic, id_) != id_
    ]
    return changes


# ---------------------------------------------------------------- the text of a position


def position_to_text(position: SourcePosition, packed_from: int = PACKED_FROM) -> str:
    """Return the position as one line of text.

    A partition with new records takes about 17 bytes, an idle one fewer. Many compressed partitions take a third.

    packed_from: from this many characters on, the text is compressed.
    """
    text = _to_json(position)
    if len(text) < packed_from:
        return text
    packed = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    return json.dumps({"version": PACKED_VERSION, "zlib": packed}, separators=(",", ":"))


def _to_json(position: SourcePosition) -> str:
    """Return the position as text of version 1. All keys are sorted."""
    topics: dict[str, dict[str, Any]] = {topic: {"id": id_} for topic, id_ in position.identity.topic_ids.items()}
    for topic, group in groupby(sorted(position.ranges.items()), key=lambda entry: entry[0].topic):
        partitions = [(partition.partition, range_) for partition, range_ in group]
        entry = topics.setdefault(topic, {})
        numbers = [number for number, _ in partitions]
        if numbers != list(range(len(numbers))):
            entry["partitions"] = numbers
        entry["end"] = _to_runs([end for _, (_, end) in partitions])
        entry["read"] = _to_runs([end - start for _, (start, end) in partitions])
    text: dict[str, Any] = {
        "version": POSITION_VERSION,
        "cluster": position.identity.cluster_id,
        "topics": dict(sorted(topics.items())),
    }
    if position.accepted is not None:
        text["accepted"] = {"way": position.accepted.flag, "found": list(position.accepted.accepted_problems)}
    return json.dumps(text, ensure_ascii=False, separators=(",", ":"))


def position_from_text(text: str, where: str) -> SourcePosition:
    """Return the position that `position_to_text` wrote.

    where: the file that holds the text, for messages.

    Raises CorruptFile for text that is no position, UnsupportedFeature for a version that this release doesn't know.
    """
    try:
        read = json.loads(text)
        if read["version"] == PACKED_VERSION:
            read = json.loads(_unpacked(read["zlib"]))
        elif read["version"] != POSITION_VERSION:
            raise UnsupportedFeature(
                f"{POSITION_PROPERTY} version {read['version']} in {where}",
                f"this release reads versions 1 to {PACKED_VERSION}, and with a guessed position rows would be lost",
                "Use the release that wrote it, or a newer one.",
            )
        identity = SourceIdentity(
            read["cluster"], {topic: entry["id"] for topic, entry in read["topics"].items() if "id" in entry}
        )
        ranges: dict[TopicPartition, OffsetRange] = {}
        for topic, entry in read["topics"].items():
            ends, counts = _from_runs(entry.get("end", [])), _from_runs(entry.get("read", []))
            numbers = entry.get("partitions", range(len(ends)))
            for number, end, count in zip(numbers, ends, counts, strict=True):
                ranges[TopicPartition(topic, number)] = OffsetRange(end - count, end)
        decided = read.get("accepted")
        accepted = None if decided is None else RecoveryDecision(decided["way"], tuple(decided["found"]))
        return SourcePosition(identity, ranges, accepted)
    except (ValueError, KeyError, TypeError, AttributeError, BadInput, zlib.error) as error:
        raise CorruptFile(
            where, f"a source position as property {POSITION_PROPERTY}", f"{text[:200]!r} ({error})"
        ) from error


def _unpacked(packed: str) -> bytes:
    """Return the decompressed text. Raises ValueError, TypeError or zlib.error for text of any other origin."""
    decompressor = zlib.decompressobj()
    text = decompressor.decompress(base64.b64decode(packed, validate=True), _UNPACKED_MAX)
    if not decompressor.eof or decompressor.unused_data:
        raise ValueError("compressed data is truncated or too long")
    return text


def _to_runs(numbers: Sequence[int]) -> _Runs:
    runs: _Runs = []
    for number, group in groupby(numbers):
        times = len(list(group))
        runs.extend([[number, times]] if times >= _SHORTEST_RUN else [number] * times)
    return runs


def _from_runs(runs: _Runs) -> list[int]:
    numbers: list[int] = []
    for run in runs:
        if isinstance(run, int):
            numbers.append(run)
        else:
            number, times = run
            numbers.extend([number] * times)
    return numbers
