"""A process decodes to the bit what the pipeline's process decodes: every format, real captures, damaged records."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest

from tests.ingest.decoding.pools import decoded_by, pool_of
from tests.ingest.formats.debezium.changes import assert_same, batch_of
from tests.ingest.formats.test_mutated_records import damaged, materials
from tests.support.change_replay import recorded_batches, target_of
from tests.support.levels import sample
from tests.support.recorded_truth import RECORDED_TABLES, RecordedTable, format_options_for
from tidelake.ingest.decoding import decode_pool
from tidelake.ingest.formats.base import DecodedBatch, OpenedFormat, Target, TargetOf
from tidelake.ingest.formats.registry import FORMATS, capabilities_of, open_format
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.raw_batch import RawBatch

IN_PROCESSES: Final = [name for name in FORMATS if not capabilities_of(name).has_document_ids]


@pytest.fixture(autouse=True)
def small_batches_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_pool, "SMALL_BYTES", 0)


def captures() -> Mapping[str, list[RecordedTable]]:
    """The tables of each variant of a capture."""
    found: dict[str, list[RecordedTable]] = {}
    for recorded in RECORDED_TABLES:
        if recorded.files and not recorded.is_large:
            found.setdefault("/".join(filter(None, (recorded.capture, recorded.variant))), []).append(recorded)
    return found


def contents(capture: str) -> tuple[RecordedTable, Mapping[str, Target | None], Sequence[RawBatch]]:
    """One of its tables, the targets by topic, and the batches."""
    tables = captures()[capture]
    batches = [batch for recorded in tables for path in recorded.files for batch in recorded_batches(path)]
    return tables[0], {topic: target_of(recorded) for recorded in tables for topic in recorded.topics}, batches


async def through_processes(
    format_: OpenedFormat, find: TargetOf, batches: Sequence[RawBatch]
) -> list[DecodedBatch | None]:
    async with pool_of(format_, find, size=2) as pool:
        return await decoded_by(pool, batches)


def assert_processes_decode_alike(
    format_: str, options: Mapping[str, Any], targets: Mapping[str, Target | None], batches: Sequence[RawBatch]
) -> None:
    """targets: by topic."""

    def find(source: SourceTable) -> Target | None:
        return targets[source.topic]

    opened = open_format(format_, options)
    decoder = opened.decoder(find)
    expected = [decoder.decode(batch) for batch in batches]
    found = asyncio.run(through_processes(opened, find, batches))
    assert None not in found
    for one, other in zip(found, expected, strict=True):
        assert one is not None
        assert_same(one, other)
        assert [part.target for part in one.tables] == [part.target for part in other.tables]
        assert all(any(part.target is target for target in targets.values()) for part in one.tables)
        assert (one.unrouted_records, one.only_deleted, one.nbytes) == (
            other.unrouted_records,
            other.only_deleted,
            other.nbytes,
        )
        for part, of_other in zip(one.tables, other.tables, strict=True):
            assert (part.key_changes is None) == (of_other.key_changes is None)
            if part.key_changes is not None and of_other.key_changes is not None:
                assert part.key_changes.rows.tolist() == of_other.key_changes.rows.tolist()
                assert part.key_changes.changes == of_other.key_changes.changes


@pytest.mark.timeout(300)
@pytest.mark.exhaustive(kept=2)
@pytest.mark.parametrize("capture", captures())
def test_a_capture_is_decoded_alike(capture: str) -> None:
    first, targets, batches = contents(capture)
    with format_options_for(first) as options:
        assert_processes_decode_alike(first.format, options, targets, batches)


@pytest.mark.timeout(300)
@pytest.mark.exhaustive
@pytest.mark.sampled
@pytest.mark.parametrize("name", IN_PROCESSES)
def test_damaged_records_of_a_format_are_decoded_alike(name: str) -> None:
    chance = random.Random(37)
    for material in sample(materials(name)):
        batches = [
            batch_of(
                [damaged(chance.choice(material.records), material.records, chance) for _ in range(50)], 50 * number
            )
            for number in range(4)
        ]
        with material.options_with_registry() as options:
            assert_processes_decode_alike(name, options, {batches[0].topic: material.target}, batches)


@pytest.mark.parametrize("name", ["debezium-json", "canal-json", "debezium-flattened-json"])
def test_records_without_a_table_are_decoded_alike(name: str) -> None:
    material = (materials(name))[-1]
    batch = batch_of(material.records)
    assert_processes_decode_alike(name, material.options, {batch.topic: None}, [batch])


def test_every_format_can_be_decoded_in_processes_or_says_why_not() -> None:
    assert set(FORMATS) - set(IN_PROCESSES) == {"debezium-bson"}
