"""Writes the shop's changes as Debezium's connector for PostgreSQL would send them, to files of a folder."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.cli.demo.shop import Key, Row, ShopChange, ShopTable
from tidelake.ingest.formats.debezium.debezium_envelope import NEW_KEY_HEADER, OLD_KEY_HEADER

TOPIC_PREFIX: Final = "shop.public"

_encode: Final = msgspec.json.Encoder().encode


def topic_of(table: ShopTable) -> str:
    return f"{TOPIC_PREFIX}.{table.name}"


class ChangeLog:
    """Writes records to files in the order of their names.

    ends: the next offset of each written partition
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = 0
        self.ends: Counter[TopicPartition] = Counter()
        self.records = 0

    def write(self, changes: Iterable[ShopChange]) -> Path:
        """Write one more file.

        It becomes visible when it is complete: readers look for `*.jsonl`, and it has another name before.
        """
        self._files += 1
        path = self._folder / f"changes-{self._files:05}.jsonl"
        unfinished = path.with_suffix(".unfinished")
        with unfinished.open("wb") as file:
            file.writelines(line for change in changes for line in self._lines(change))
        os.replace(unfinished, path)
        return path

    def _lines(self, change: ShopChange) -> Iterator[bytes]:
        """Yield the records of a change.

        A change of the key is a delete and an insert that refer to each other; a delete is followed by a tombstone.
        """
        table, before, after = change.table, change.before, change.after
        old, new = before and _key_text(table, before), after and _key_text(table, after)
        if before is not None and after is not None and old != new:
            yield self._line(change, before, _value(change, "d", before, None), [(NEW_KEY_HEADER, new)])
            yield self._line(change, before, None)
            yield self._line(change, after, _value(change, "c", None, after), [(OLD_KEY_HEADER, old)])
        elif after is not None:
            op = "r" if change.is_snapshot else "c" if before is None else "u"
            yield self._line(change, after, _value(change, op, before, after))
        elif before is not None:
            yield self._line(change, before, _value(change, "d", before, None))
            yield self._line(change, before, None)

    def _line(self, change: ShopChange, keyed: Row, value: str | None, headers: list[Any] | None = None) -> bytes:
        partition = TopicPartition(topic_of(change.table), _partition_of(change.table, change.table.key_of(keyed)))
        offset = self.ends[partition]
        self.ends[partition] += 1
        self.records += 1
        record = {
            "topic": partition.topic,
            "partition": partition.partition,
            "offset": offset,
            "timestamp_ms": int(change.at.timestamp() * 1000),
            "key": _key_text(change.table, keyed),
            "value": value,
            "headers": headers or [],
        }
        return _encode(record) + b"\n"


def _partition_of(table: ShopTable, key: Key) -> int:
    """Return the partition. Orders have two; the delete and the insert of a moved row must be in the same one."""
    return int(key[0]) % 2 if table.name == "orders" else 0


def _key_text(table: ShopTable, row: Row) -> str:
    return _encode({column: row[column] for column in table.primary_key}).decode()


def _value(change: ShopChange, op: str, before: Row | None, after: Row | None) -> str:
    """Return a value as Debezium sends it.

    Its settings are `decimal.handling.mode=string`, `time.precision.mode=isostring` and REPLICA IDENTITY FULL.
    """
    milliseconds = int(change.at.timestamp() * 1000)
    envelope = {
        "before": before,
        "after": after,
        "source": {
            "version": "3.5.0.Final",
            "connector": "postgresql",
            "name": "shop",
            "ts_ms": milliseconds,
            "snapshot": "true" if change.is_snapshot else "false",
            "db": "shop",
            "schema": "public",
            "table": change.table.name,
        },
        "transaction": None,
        "op": op,
        "ts_ms": milliseconds,
    }
    return _encode(envelope).decode()
