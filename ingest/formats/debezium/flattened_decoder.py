"""Decodes flattened records by the decoder of records with envelopes.

The members that the transformation added are ignored, unless the table has columns of their names. The topic names the
source table (`<prefix>.<schema or database>.<table>`), because not every record does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tidelake.ingest.formats.base import DecodedBatch, Decoder, JsonView, Target, TargetOf
from tidelake.ingest.formats.debezium.flattened_records import Enveloped
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.raw_batch import RawBatch


class FlattenedDecoder:
    """The decoder of flattened records. See `tidelake.ingest.formats.base.Decoder`.

    make: returns the decoder of records with envelopes.
    target_of: returns the target of a source table.
    envelop: returns the batch with envelopes, and the names of the added members.
    """

    def __init__(
        self, make: Callable[[TargetOf], Decoder], target_of: TargetOf, envelop: Callable[[RawBatch], Enveloped]
    ) -> None:
        self._target_of = target_of
        self._envelop = envelop
        self._ignoring: dict[str, tuple[Target, Target]] = {}  # by name: a table, and the target that ignores members
        self._metadata: frozenset[str] = frozenset()
        self._decoder = make(self._target_that_ignores)

    def decode(self, batch: RawBatch) -> DecodedBatch:
        found = self._envelop(batch)
        self._metadata |= found.metadata
        decoded = self._decoder.decode(found.batch)
        tables = self._ignoring
        return replace(
            decoded,
            tables=tuple(replace(part, target=tables[part.target.name][0]) for part in decoded.tables),
            failures=tuple(
                replace(
                    failure,
                    source=None if failure.source is None else named_by_topic(failure.source),
                    target=None if failure.target is None else tables[failure.target.name][0],
                )
                for failure in decoded.failures
            ),
            unrouted={named_by_topic(source): row for source, row in decoded.unrouted.items()},
            unrouted_records={named_by_topic(source): count for source, count in decoded.unrouted_records.items()},
            only_deleted=frozenset(map(named_by_topic, decoded.only_deleted)),
        )

    def value_as_json(self, batch: RawBatch, row: int) -> bytes:
        """Return a record's value as JSON. See `JsonView`."""
        if isinstance(self._decoder, JsonView):
            return self._decoder.value_as_json(batch, row)
        value: bytes | None = batch.values[row].as_py()
        return b"{}" if value is None else value

    def _target_that_ignores(self, source: SourceTable) -> Target | None:
        whole = self._target_of(named_by_topic(source))
        if whole is None:
            return None
        ignored = whole.ignored_columns | (self._metadata - whole.schema.by_name.keys())
        known = self._ignoring.get(whole.name)
        if known is None or known[0] is not whole or known[1].ignored_columns != ignored:
            known = self._ignoring[whole.name] = whole, replace(whole, ignored_columns=ignored)
        return known[1]


def named_by_topic(source: SourceTable) -> SourceTable:
    """Return the source table that the topic names."""
    names = source.topic.split(".")
    return SourceTable(source.topic, None, names[-2] if len(names) > 1 else None, names[-1])
