"""Recovery flags of the command line: an operator's decisions after a pipeline refused to continue."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import BadInput
from tidelake.ingest.sources.source import AtOffsets, AtTimestamp, Earliest
from tidelake.storage.base.clock import datetime_in_ms
from tidelake.storage.model.messages import did_you_mean

RewindTo = Earliest | AtTimestamp | AtOffsets


@dataclass(frozen=True, slots=True)
class RecoveryFlags:
    """The recovery options of a start: at most one per table, and records to skip.

    texts: each table's option as the operator wrote it. A table that is in neither `rewinds` nor `snapshots` accepts
        the gap.
    rewinds: where a table is read again.
    snapshots: the snapshot of a table at whose end it continues.
    """

    rewinds: Mapping[str, RewindTo] = field(default_factory=dict)
    snapshots: Mapping[str, int] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    skip: frozenset[tuple[TopicPartition, int]] = frozenset()

    @property
    def tables(self) -> Collection[str]:
        return self.texts.keys()

    def without(self, tables: Collection[str]) -> RecoveryFlags:
        """Return the flags without these tables. Their snapshots record the position now, so the flags are done."""
        return replace(self, texts={table: text for table, text in self.texts.items() if table not in tables})


def parse_recovery_flags(
    accept_gap: Sequence[str],
    rewind_to: Sequence[str],
    from_snapshot: Sequence[str],
    tables: Collection[str],
    skip_record: Sequence[str] = (),
) -> RecoveryFlags:
    """Parse the recovery flags. Raises BadInput.

    accept_gap: `TABLE`.
    rewind_to: `TABLE=WHERE`. WHERE is `earliest`, an ISO time, or `TOPIC:PARTITION:OFFSET,…`.
    from_snapshot: `TABLE=ID`.
    tables: all tables of the pipeline.
    skip_record: `TOPIC:PARTITION:OFFSET`.
    """
    rewinds = [_split_flag("--rewind-to", text, "earliest") for text in rewind_to]
    snapshots = [_split_flag("--from-snapshot", text, "17") for text in from_snapshot]
    texts: dict[str, str] = {}
    for table, text in chain(
        ((table, f"--accept-gap {table}") for table in accept_gap),
        ((table, f"--rewind-to {table}={where}") for table, where in rewinds),
        ((table, f"--from-snapshot {table}={id_}") for table, id_ in snapshots),
    ):
        if table not in tables:
            raise BadInput(f"{text}: the pipeline has no table {table}{did_you_mean(table, tables)}")
        if table in texts:
            raise BadInput(f"{table} has two options, {texts[table]} and {text}. Choose one of them")
        texts[table] = text
    return RecoveryFlags(
        {table: _where(table, where) for table, where in rewinds},
        {table: _snapshot_id(table, id_) for table, id_ in snapshots},
        texts,
        frozenset(_record(text) for text in skip_record),
    )


def _record(text: str) -> tuple[TopicPartition, int]:
    found = re.fullmatch(r"(.+):(\d+):(\d+)", text)
    if found is None:
        raise BadInput(
            f"--skip-record {text}: {text!r} is not TOPIC:PARTITION:OFFSET; copy it from the message about the record"
        )
    return TopicPartition(found[1], int(found[2])), int(found[3])


def _split_flag(option: str, text: str, example: str) -> tuple[str, str]:
    table, equals, rest = text.partition("=")
    if not equals or not table or not rest:
        raise BadInput(f"{option} {text}: write {option} {table if equals and table else 'TABLE'}={example}")
    return table, rest


def _where(table: str, text: str) -> RewindTo:
    if text == "earliest":
        return Earliest()
    if re.match(r"\d{4}-\d\d-\d\d", text):
        try:
            time = datetime.fromisoformat(text)
            return AtTimestamp(datetime_in_ms(time))
        except ValueError as error:
            raise BadInput(f"--rewind-to {table}={text}: {error}. Example: 2026-05-01T12:00:00Z") from None
    offsets: dict[TopicPartition, int] = {}
    for part in text.split(","):
        topic, _, numbers = part.partition(":")
        found = re.fullmatch(r"(\d+):(\d+)", numbers)
        if found is None:
            raise BadInput(
                f"--rewind-to {table}={text}: {part!r} is not TOPIC:PARTITION:OFFSET. Or write `earliest`, or a time "
                "such as 2026-05-01T12:00:00Z"
            )
        offsets[TopicPartition(topic, int(found[1]))] = int(found[2])
    return AtOffsets(offsets)


def _snapshot_id(table: str, text: str) -> int:
    if not text.isdecimal():
        raise BadInput(f"--from-snapshot {table}={text}: {text!r} is not the id of a snapshot, such as 17")
    return int(text)
