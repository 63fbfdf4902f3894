"""The text of a source position in a snapshot's properties.

Version 1 is one line of JSON; `docs/positions.md` shows it. Version 2 is the same line, compressed: otherwise a
position of many topics would be larger than the rest of the snapshot file. Both stay on disk forever. So a reader
refuses a version that it doesn't know, and the meaning of a key never changes.

A long position is complete, too. It also includes the topics that never had a record for the table. The positions of
other tables could replace these entries only while all tables are as the pipeline left them. A table that was rolled
back, restored or copied would skip the records of its lost snapshots, and retention could delete records past its
position undetected.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final, TypeAlias

from tidelake.checkpoint.offsets import OffsetRange, RecoveryDecision, SourceIdentity, SourcePosition, TopicPartition
from tidelake.storage.base.errors import BadInput, CorruptFile, UnsupportedFeature

POSITION_PROPERTY: Final = "tidelake.position"  # key in Snapshot.properties
POSITION_VERSION: Final = 1
PACKED_VERSION: Final = 2
PACKED_FROM: Final = 2_048  # characters; shorter positions stay readable

_UNPACKED_MAX: Final = 64 << 20  # bytes; a position of a million partitions is less

# Equal consecutive numbers are written as `[number, count]`: of 1,000 partitions most are idle at any one time.
_SHORTEST_RUN: Final = 3
_Runs: TypeAlias = list[int | list[int]]


def position_to_text(position: SourcePosition, packed_from: int = PACKED_FROM) -> str:
    """Returns the position as one line of text.

    A partition with new records takes about 17 bytes, an idle one fewer. Many compressed partitions take a third.

    packed_from: from this many characters on, the text is compressed.
    """
    text = _to_json(position)
    if len(text) < packed_from:
        return text
    packed = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    return json.dumps({"version": PACKED_VERSION, "zlib": packed}, separators=(",", ":"))


def _to_json(position: SourcePosition) -> str:
    """Returns the position as text of version 1. All keys are sorted."""
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
    """Returns the position that `position_to_text` wrote.

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
    """Returns the decompressed text. Raises ValueError, TypeError or zlib.error for text of any other origin."""
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
