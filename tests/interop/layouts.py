"""Layouts of a table: types, formats, partitions, buckets and options, each combined with some of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul
from typing import Any, Final

import pyarrow as pa

from tests.interop.columns import BY_NAME, NESTED, SCALARS, Column
from tests.interop.shared_table import KIND, Reader

K: Final = Column("k", "INT", pa.int32(), tuple(range(1000)))
PLACE: Final = Column(
    "place",
    "STRING",
    pa.string(),
    ("north", "a=b/c", "50%", "ü 🌊", "it's", "..", "x:y", "{}", " lead", "tab\t", "", " "),
)
NAMED: Final = {**BY_NAME, "k": K, "place": PLACE}

ALL_NESTED: Final = tuple(c.name for c in NESTED)
NANOSECONDS: Final = ("timestamp_ns", "timestamp_ns_ltz")
ALL_SCALARS: Final = tuple(c.name for c in SCALARS if c.name not in NANOSECONDS)
ORC_SCALARS: Final = tuple(name for name in ALL_SCALARS if name != "char" and not name.startswith("timestamp"))
CHAR_AND_TIMES: Final = ("char", *(c.name for c in SCALARS if c.name.startswith("timestamp")))
SOME: Final = ("int", "string", "double", "timestamp_us")

_ORC_TIMES: Final = "its ORC library adds up seconds and nanoseconds of a time before 1970 wrongly"
_CUT_TIMES: Final = "its merge cuts times to microseconds"
_ORC_BLANKS: Final = "it shows the blanks that Java fills a CHAR with"


@dataclass(frozen=True)
class Layout:
    """values, key, partition: names of columns; those of the key come first in the table. Without a key: an append
    table.
    """

    id: str
    values: Sequence[str] = SOME
    key: Sequence[str] = ()
    partition: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    cannot: Mapping[Reader, str] = field(default_factory=dict)

    @property
    def columns(self) -> list[Column]:
        names = dict.fromkeys([*self.partition, *self.key, *self.values])
        return [NAMED[name] for name in names]

    @property
    def file_format(self) -> str:
        return self.options.get("file.format", "parquet")

    @property
    def format_of_level_0(self) -> str:
        return "avro" if "file.format.per.level" in self.options else self.file_format

    def _choices(self, name: str) -> tuple[Any, ...]:
        """Two values for each of several partition columns: that makes folders enough."""
        values = NAMED[name].values_for(self.file_format)
        return values[:2] if name in self.partition and len(self.partition) > 1 else values

    def rows(self, numbers: Sequence[int], kinds: Sequence[int] | None = None, *, turn: int = 0) -> pa.Table:
        """One row for each number: the number says the key (or, without one, which values), the turn the other
        values.
        """
        arrays = {}
        steps = accumulate((len(self._choices(name)) for name in self.key), mul, initial=1)
        step_of = dict(zip(self.key, steps, strict=False))
        for column in self.columns:
            choices = self._choices(column.name)
            if column.name in self.key:
                places = [number // step_of[column.name] % len(choices) for number in numbers]
            else:
                choices = (*choices, None)
                places = [(number * 17 + turn) % len(choices) for number in numbers]  # a prime: every value comes
            arrays[column.name] = pa.array([choices[place] for place in places], column.arrow)
        if kinds is not None:
            arrays[KIND] = pa.array(kinds, pa.int8())
        return pa.table(arrays)


def primary_key(
    id: str, values: Sequence[str] = SOME, key: Sequence[str] = ("k",), partition: Sequence[str] = (), **more: Any
) -> Layout:
    options = {"bucket": "1"} | more.pop("options", {})
    return Layout(id, values, [*partition, *key], partition, options, **more)


def append(id: str, values: Sequence[str] = SOME, partition: Sequence[str] = (), **more: Any) -> Layout:
    return Layout(
        id, values, (), partition, {"bucket": "-1", "compaction.min.file-num": "2"} | more.pop("options", {}), **more
    )


LAYOUTS: Final = (
    primary_key("every scalar in parquet", ALL_SCALARS),
    primary_key("every scalar in orc", ORC_SCALARS, options={"file.format": "orc"}),
    primary_key("every scalar in avro", ALL_SCALARS, options={"file.format": "avro"}),
    primary_key("nanoseconds in parquet", NANOSECONDS, cannot={Reader.PYPAIMON: _CUT_TIMES}),
    primary_key(
        "char and times in orc",
        CHAR_AND_TIMES,
        options={"file.format": "orc"},
        cannot={Reader.PYPAIMON: f"{_CUT_TIMES}; {_ORC_BLANKS}", Reader.RUST: _ORC_TIMES},
    ),
    primary_key("nested types in parquet", ALL_NESTED),
    primary_key("nested types in orc", ALL_NESTED, options={"file.format": "orc"}),
    primary_key(
        "nested types in avro",
        ALL_NESTED,
        options={"file.format": "avro"},
        cannot={Reader.RUST: "it takes nested rows of an Avro file for empty when the first one is null"},
    ),
    primary_key(
        "text in the key, four buckets, snappy",
        key=["string", "tinyint"],
        options={"bucket": "4", "file.compression": "snappy"},
    ),
    primary_key(
        "three columns in the key, four buckets, avro",
        key=["bigint", "varchar", "date"],
        options={"bucket": "4", "file.format": "avro"},
    ),
    primary_key(
        "long decimals in the key, orc with zlib",
        ["int"],
        key=["decimal_large", "k"],
        options={"file.format": "orc", "file.compression": "zlib"},
    ),
    primary_key("bytes in the key", key=["bytes", "time", "k"], options={"bucket": "2"}),
    primary_key("buckets by mod", options={"bucket": "4", "bucket-function.type": "mod"}),
    primary_key(
        "buckets by the hive hash of a part of the key",
        key=["k", "string"],
        options={"bucket": "4", "bucket-function.type": "hive", "bucket-key": "string"},
    ),
    primary_key("partitioned by text with every special character", partition=["place"], options={"bucket": "2"}),
    primary_key(
        "partitioned by number, truth and day, orc",
        ["int", "string"],
        partition=["smallint", "boolean", "date"],
        options={"file.format": "orc"},
    ),
    primary_key(
        "partitioned by time, decimal and float, avro",
        partition=["timestamp_ms", "decimal_small", "float"],
        options={"file.format": "avro"},
    ),
    primary_key(
        "partitioned by names without the legacy form",
        partition=["timestamp_us", "date", "double"],
        options={"partition.legacy-name": "false"},
    ),
    primary_key("changelog of the input", options={"changelog-producer": "input", "bucket": "2"}),
    primary_key(
        "changelog of the input, partitioned, avro",
        partition=["boolean"],
        options={"changelog-producer": "input", "file.format": "avro"},
    ),
    primary_key("thin mode", key=["k", "string"], options={"data-file.thin-mode": "true"}),
    primary_key(
        "thin mode, orc",
        ["int"],
        key=["k", "string"],
        options={"data-file.thin-mode": "true", "file.format": "orc"},
    ),
    primary_key("no statistics", options={"metadata.stats-mode": "none"}),
    primary_key(
        "whole statistics, not dense", options={"metadata.stats-mode": "full", "metadata.stats-dense-store": "false"}
    ),
    primary_key(
        "statistics of one column",
        options={"metadata.stats-mode": "counts", "fields.string.stats-mode": "truncate(3)"},
    ),
    primary_key(
        "a format and a compression for each level",
        ["int", "string"],
        options={"file.format.per.level": "0:avro", "file.compression.per.level": "0:deflate"},
    ),
    primary_key("manifests in snappy", options={"manifest.compression": "snappy"}),
    primary_key(
        "manifests without compression, merged at once",
        options={"manifest.compression": "null", "manifest.merge-min-count": "2"},
    ),
    primary_key("write-only", options={"write-only": "true"}),
    primary_key("files of a few rows", options={"target-file-size": "1 kb", "bucket": "2"}),
    append("append, every scalar in parquet", (*ALL_SCALARS, *NANOSECONDS)),
    append("append, every scalar in orc", ORC_SCALARS, options={"file.format": "orc"}),
    append("append, every scalar in avro", ALL_SCALARS, options={"file.format": "avro"}),
    append(
        "append, char and times in orc",
        CHAR_AND_TIMES,
        options={"file.format": "orc"},
        cannot={Reader.PYPAIMON: _ORC_BLANKS, Reader.RUST: _ORC_TIMES},
    ),
    append("append, nested types", ALL_NESTED),
    append("append, partitioned by text and number that may be null", ["string"], ["place", "int"]),
    append(
        "append, partitioned by day that may be null, orc", ["int", "string"], ["date"], options={"file.format": "orc"}
    ),
    append("append, buckets by text", ["string", "int"], options={"bucket": "4", "bucket-key": "string"}),
    append(
        "append, buckets by two columns, partitioned, avro",
        ["bigint", "double", "string"],
        ["boolean"],
        options={"bucket": "3", "bucket-key": "bigint,double", "file.format": "avro"},
    ),
)
