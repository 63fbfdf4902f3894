"""The results of `create_schema` for columns, keys and options, and the refused schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from tidelake.errors import BadInput, TidelakeError, UnsupportedFeature
from tidelake.storage.ddl.schema_creation import create_schema
from tidelake.storage.model.bucketing import BucketMode, bucket_mode
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types import INT, STRING, DataField, MultisetType, RowType, parse_type, walk_types

NOW_MS = 1_700_000_000_000
COLUMNS = pa.schema(
    [("k", pa.int64()), ("p", pa.date32()), ("v", pa.string()), ("n", pa.int32()), ("a", pa.list_(pa.int32()))]
)


def create(
    columns: pa.Schema | Sequence[DataField] = COLUMNS,
    primary_key: Sequence[str] = (),
    partition_by: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> TableSchema:
    return create_schema(columns, primary_key=primary_key, partition_by=partition_by, options=options, time_ms=NOW_MS)


def spelled(schema: TableSchema) -> dict[str, str]:
    return {f.name: str(f.type) for f in schema.fields}


# ---------------------------------------------------------------- columns


def test_primary_key_columns_become_not_null_and_others_are_unchanged() -> None:
    columns = pa.schema([("k", pa.int64()), pa.field("v", pa.string(), nullable=False), ("w", pa.bool_())])
    assert spelled(create(columns, ["k"])) == {"k": "BIGINT NOT NULL", "v": "STRING NOT NULL", "w": "BOOLEAN"}


def test_with_nullable_primary_keys_key_columns_accept_nulls() -> None:
    columns = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
    assert spelled(create(columns, ["k"], options={"primary-key.nullable": "true"}))["k"] == "BIGINT"


def test_a_new_schema_has_id_0_and_a_time() -> None:
    schema = create_schema(COLUMNS, comment="né", time_ms=NOW_MS)
    assert (schema.id, schema.time_ms, schema.comment, schema.highest_field_id) == (0, NOW_MS, "né", 4)


def test_column_ids_precede_those_of_their_nested_fields() -> None:
    inner = pa.struct([("p", pa.int32()), ("q", pa.int32())])
    columns = pa.schema(
        [
            ("a", pa.int32()),
            ("r", pa.struct([("x", pa.int32()), ("z", inner)])),
            ("m", pa.map_(pa.string(), pa.list_(pa.struct([("e", inner)])))),
            ("b", pa.int32()),
        ]
    )
    assert dict(_ids(create(columns).fields)) == {
        "a": 0,
        "r": 1, "r.x": 2, "r.p": 3, "r.q": 4, "r.z": 5,
        "m": 6, "m.p": 7, "m.q": 8, "m.e": 9,
        "b": 10,
    }  # fmt: skip
    assert create(columns).highest_field_id == 10


def _ids(fields: Sequence[DataField]) -> list[tuple[str, int]]:
    """Of columns, and as `column.field` of all that is nested in them."""
    found = []
    for f in fields:
        found.append((f.name, f.id))
        for row in (inner for inner in walk_types(f.type) if isinstance(inner, RowType)):
            found += [(f"{f.name}.{g.name}", g.id) for g in row.fields]
    return found


def test_descriptions_come_from_the_metadata_of_arrow_fields_nested_ones_too() -> None:
    inner = pa.field("x", pa.int32(), metadata={"description": "étage"})
    columns = pa.schema([pa.field("r", pa.struct([inner]), metadata={b"description": b"where", b"other": b"no"})])
    (column,) = create(columns).fields
    assert column.description == "where"
    assert isinstance(column.type, RowType)
    assert column.type.fields[0].description == "étage"


def test_columns_may_have_types_that_arrow_lacks() -> None:
    given = [
        DataField(7, "k", parse_type("VARCHAR(20)")),
        DataField(7, "s", MultisetType(STRING), "seen", None),
        DataField(7, "d", INT, None, "'5'"),
    ]
    schema = create(given, ["k"])
    assert spelled(schema) == {"k": "VARCHAR(20) NOT NULL", "s": "MULTISET<STRING>", "d": "INT"}
    assert [(f.id, f.description, f.default) for f in schema.fields] == [
        (0, None, None), (1, "seen", None), (2, None, "'5'"),
    ]  # fmt: skip


# ---------------------------------------------------------------- keys and buckets


def test_keys_given_as_options_move_into_the_schema() -> None:
    schema = create(options={"primary-key": " k , p", "partition": "p", "bucket": "3"})
    assert (schema.primary_keys, schema.partition_keys) == (("k", "p"), ("p",))
    assert schema.options == {"bucket": "3"}
    assert spelled(schema)["p"] == "DATE NOT NULL"


@pytest.mark.parametrize(
    ("primary_key", "options", "mode"),
    [
        pytest.param(["k"], {}, BucketMode.DYNAMIC, id="primary key"),
        pytest.param([], {}, BucketMode.UNAWARE, id="append"),
        pytest.param(["k"], {"bucket": "-1"}, BucketMode.DYNAMIC, id="primary key, asked for dynamic buckets"),
        pytest.param(["k"], {"bucket": "1"}, BucketMode.FIXED, id="primary key, asked for one bucket"),
        pytest.param(["k"], {"bucket": "-2"}, BucketMode.POSTPONE, id="primary key, asked for postponed buckets"),
        pytest.param([], {"bucket": "4", "bucket-key": "n"}, BucketMode.FIXED, id="append with a bucket key"),
    ],
)
def test_buckets_are_dynamic_by_default_and_options_are_stored_as_given(
    primary_key: list[str], options: dict[str, str], mode: BucketMode
) -> None:
    schema = create(primary_key=primary_key, options=options)
    assert schema.options == options
    assert bucket_mode(schema, schema.options) is mode


def test_a_dynamic_table_may_have_a_key_without_partition_columns() -> None:
    schema = create(primary_key=["k"], partition_by=["p"])
    assert schema.crosses_partitions
    assert bucket_mode(schema, schema.options) is BucketMode.CROSS_PARTITION


@dataclass(frozen=True)
class Accepted:
    id: str
    options: Mapping[str, str]
    primary_key: Sequence[str] = ("k",)


ACCEPTED = [
    Accepted("sequence fields", {"sequence.field": "n, v", "sequence.field.sort-order": "DESCENDING"}),
    Accepted("row kinds from a column", {"rowkind.field": "v"}),
    Accepted("age of rows from an integer", {"record-level.time-field": "n", "record-level.expire-time": "1 d"}),
    Accepted("options of columns", {"fields.n.stats-mode": "truncate(3)", "fields.v,n.sequence-group": "p"}),
    Accepted("a default for all aggregates", {"fields.default-aggregate-function": "last_value"}),
    Accepted("formats per level", {"file.format": "ORC", "file.format.per.level": "0:avro, 5:parquet"}),
    Accepted("changelog of lookups", {"changelog-producer": "lookup", "deletion-vectors.enabled": "true"}),
    Accepted("rows that came first", {"merge-engine": "first-row", "changelog-producer": "lookup"}),
    Accepted("retention", {"snapshot.num-retained.min": "5", "snapshot.num-retained.max": "5"}),
    Accepted("row ids", {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}, primary_key=()),
    Accepted("bucket key out of two", {"bucket": "8", "bucket-key": "k"}, primary_key=("n", "k")),
    Accepted("options nobody knows", {"my.own": "note"}),
]


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda c: c.id)
def test_consistent_options_are_stored_as_given(case: Accepted) -> None:
    schema = create(primary_key=case.primary_key, options=case.options)
    assert case.options.items() <= schema.options.items()


# ---------------------------------------------------------------- refusals


@dataclass(frozen=True)
class Refused:
    """message: a pattern; it holds the name, the reason and the remedy."""

    id: str
    message: str
    columns: pa.Schema | Sequence[DataField] = field(default_factory=lambda: COLUMNS)
    primary_key: Sequence[str] = ("k",)
    partition_by: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    error: type[TidelakeError] = BadInput


def one(data_type: str) -> list[DataField]:
    return [DataField(0, "k", INT), DataField(0, "c", parse_type(data_type))]


COLUMN_REFUSALS = [
    Refused(
        "ignored fields that are no columns",
        r"option changelog-producer.row-deduplicate-ignore-fields.*' n'",
        options={"changelog-producer.row-deduplicate-ignore-fields": "v, n"},
    ),
    Refused("no columns", "has no column; add one", pa.schema([]), primary_key=()),
    Refused("two of a name", "two columns named 'k'; rename", pa.schema([("k", pa.int8()), ("k", pa.int8())])),
    Refused("a blank name", "without a name; add a name", pa.schema([("k", pa.int8()), (" ", pa.int8())])),
    Refused(
        "a system column", "'_VALUE_KIND'.*reserved by Paimon; rename", pa.schema([("_VALUE_KIND", pa.int8())]), ()
    ),
    Refused("the audit log's column", "'rowkind'.*rename", pa.schema([("rowkind", pa.string())]), ()),
    Refused("a key column's prefix", "'_KEY_k'.*rename", pa.schema([("_KEY_k", pa.int8())]), ()),
    Refused(
        "two of a name inside",
        "column 'r': its ROW has two columns named 'x'; rename",
        pa.schema([("k", pa.int8()), ("r", pa.list_(pa.struct([("x", pa.int8()), ("x", pa.int8())])))]),
    ),
    Refused("an empty struct", "'r': a ROW needs a field", pa.schema([("k", pa.int8()), ("r", pa.struct([]))])),
    Refused("no bytes at all", r"'b': BINARY\(0\).*length of 1", pa.schema([("k", pa.int8()), ("b", pa.binary(0))])),
    Refused("no characters at all", r"'c': CHAR\(0\).*length of 1", one("CHAR(0)")),
    Refused("a vector of texts", "'c': VECTOR<STRING, 3>.*use an ARRAY", one("VECTOR<STRING, 3>")),
    Refused("a vector of nothing", "'c': VECTOR<FLOAT, 0>.*use an ARRAY", one("VECTOR<FLOAT, 0>")),
    Refused("large objects", "'c' BLOB.*data-evolution", one("BLOB"), error=UnsupportedFeature),
    Refused("what Arrow has and Paimon lacks", "column d: no Paimon type", pa.schema([("d", pa.duration("s"))]), ()),
    Refused("times too fine", r"column t: .*time32\('ms'\)", pa.schema([("t", pa.time64("us"))]), ()),
    Refused(
        "a default of another type", "'d': its default 'x' is not a valid INT", [DataField(0, "d", INT, None, "x")], ()
    ),
    Refused(
        "a default of a nested type",
        "'d'.*default 'x'.*ARRAY<INT>",
        [DataField(0, "d", parse_type("ARRAY<INT>"), None, "x")],
        (),
    ),
]

KEY_REFUSALS = [
    Refused("an unknown key", r"primary key \(K\): no column 'K'.*did you mean 'k'\?", primary_key=["K"]),
    Refused("an unknown partition", r"partition columns \(q\): no column 'q'", partition_by=["q"]),
    Refused("a key named twice", "'k' occurs 2 times; list it once", primary_key=["k", "k"]),
    Refused("a partition named twice", "'p' occurs 2 times", primary_key=["k", "p"], partition_by=["p", "p"]),
    Refused("a nested key", r"primary key \(a\): 'a' is ARRAY<INT>.*leave it out", primary_key=["a"]),
    Refused("a nested partition", "partition columns.*'a' is ARRAY<INT>", primary_key=(), partition_by=["a"]),
    Refused("a variant as key", "'c' is VARIANT NOT NULL", one("VARIANT"), primary_key=["c"]),
    Refused("bytes as partition", "'c' is BYTES.*another type", one("BYTES"), primary_key=(), partition_by=["c"]),
    Refused("a key equal to the partition", "one row; add a column", primary_key=["p"], partition_by=["p"]),
    Refused("keys given twice", "option primary-key = 'n'.*name the columns once", options={"primary-key": "n"}),
    Refused(
        "partitions given twice",
        "option partition = 'p'",
        primary_key=["k", "p"],
        partition_by=["p"],
        options={"partition": "p"},
    ),
    Refused(
        "nullable keys without a key",
        "primary-key.nullable.*name one",
        primary_key=(),
        options={"primary-key.nullable": "true"},
    ),
]

BUCKET_REFUSALS = [
    Refused("no buckets", "option bucket = 0", options={"bucket": "0"}),
    Refused("not a number of buckets", "option bucket = 'many'", options={"bucket": "many"}),
    Refused("postponed without a key", "option bucket = -2", primary_key=(), options={"bucket": "-2"}),
    Refused("append buckets without a bucket key", "bucket-key", primary_key=(), options={"bucket": "2"}),
    Refused("one append bucket without a bucket key", "bucket-key", primary_key=(), options={"bucket": "1"}),
    Refused("a bucket key without buckets", "bucket-key", primary_key=(), options={"bucket-key": "k"}),
    Refused("an unknown bucket key", "no column 'q'", options={"bucket": "2", "bucket-key": "q"}),
    Refused(
        "a bucket key outside of the key", "n is not in the primary key", options={"bucket": "2", "bucket-key": "n"}
    ),
    Refused("a bucket key, but dynamic buckets", "needs a fixed number of buckets", options={"bucket-key": "k"}),
    Refused(
        "a bucket key of a partition column",
        "partition column",
        primary_key=["k", "p"],
        partition_by=["p"],
        options={"bucket": "2", "bucket-key": "p"},
    ),
    Refused("a nested bucket key", "ARRAY<INT>", primary_key=(), options={"bucket": "2", "bucket-key": "a"}),
    Refused("an unknown function", "bucket-function.type", options={"bucket-function.type": "crc"}),
    Refused(
        "mod of a text",
        "bucket-function.type",
        primary_key=["v"],
        options={"bucket": "2", "bucket-function.type": "mod"},
    ),
]

OPTION_REFUSALS = [
    Refused("a number as option", "option bucket = 4: options must be strings; write '4'", options={"bucket": 4}),  # type: ignore[dict-item]
    Refused("a truth as option", "write-only = True.*write 'true'", options={"write-only": True}),  # type: ignore[dict-item]
    Refused("a size that is none", "option write-buffer-size = 'big'", options={"write-buffer-size": "big"}),
    Refused("a duration that is none", "commit.timeout = '5 moons'", options={"commit.timeout": "5 moons"}),
    Refused("a switch that is none", "write-only = 'yes'", options={"write-only": "yes"}),
    Refused("a number that is none", "num-levels = 'x'", options={"num-levels": "x"}),
    Refused("a number of too many bits", "num-levels = '2147483648'.*too large", options={"num-levels": "2147483648"}),
    Refused("a number with _ in it", "retries = '1_0': expected a whole number", options={"commit.max-retries": "1_0"}),
    Refused("blanks around a number", "num-levels = ' 3'.*write '3'", options={"num-levels": " 3"}),
    Refused("blanks around a switch", "ignore-delete = 'true '.*write 'true'", options={"ignore-delete": "true "}),
    Refused("blanks around a word", "producer = 'none '.*Java", options={"changelog-producer": "none "}),
    Refused("blanks around a format", "file.format = ' orc'.*write 'orc'", options={"file.format": " orc"}),
    Refused("_ for -", "'first_row': expected one of .*first-row; Java", options={"merge-engine": "first_row"}),
    Refused(
        "a word of an option without effect",
        "sort-engine = 'LOSER_TREE'.*loser-tree",
        options={"sort-engine": "LOSER_TREE"},
    ),
    Refused("a switch without effect", "async-file-write = 'maybe'", options={"async-file-write": "maybe"}),
    Refused("a switch of a column", "fields.n.ignore-retract = 'yes'", options={"fields.n.ignore-retract": "yes"}),
    Refused(
        "compaction at no run", "trigger = 0: must be at least", options={"num-sorted-run.compaction-trigger": "0"}
    ),
    Refused("a single level", "num-levels = 1: must be at least 2", options={"num-levels": "1"}),
    Refused("merges of one run", "sort-spill-threshold = 1: must be at least 2", options={"sort-spill-threshold": "1"}),
    Refused(
        "a buffer of less than 3 pages",
        "write-buffer-size = 196607 bytes.*196608 bytes or more",
        options={"write-buffer-size": "196607"},
    ),
    Refused("an unknown merge engine", "merge-engine = 'dedup'.*deduplicate", options={"merge-engine": "dedup"}),
    Refused("an unknown producer", "changelog-producer = 'some'", options={"changelog-producer": "some"}),
    Refused("an unknown format", "'paruqet'.*did you mean 'parquet'", options={"file.format": "paruqet"}),
    Refused("an unknown format of a level", "per.level 0 = 'csv'", options={"file.format.per.level": "0:csv"}),
    Refused("an unknown changelog format", "'txt'.*expected", options={"changelog-file.format": "txt"}),
    Refused("a level that is no number", "level:value", options={"file.compression.per.level": "top:lz4"}),
    Refused("levels that are no pairs", "per.level = 'avro'", options={"file.format.per.level": "avro"}),
    Refused("an unknown statistics mode", "'most'.*truncate", options={"metadata.stats-mode": "most"}),
    Refused("an unknown mode of a column", "'trunc'.*truncate", options={"fields.n.stats-mode": "trunc"}),
    Refused("an unknown mode of a level", "'all'.*truncate", options={"metadata.stats-mode.per.level": "0:all"}),
    Refused("files without rows", "target-file-row-num = 0", options={"target-file-row-num": "0"}),
    Refused("no snapshots kept", "snapshot.num-retained.min = 0", options={"snapshot.num-retained.min": "0"}),
    Refused("more kept than allowed", "is more than", options={"snapshot.num-retained.max": "3"}),
    Refused(
        "more changelogs kept than allowed", "changelog.num-retained.min", options={"changelog.num-retained.max": "1"}
    ),
    Refused(
        "an option of no column", "option fields.q.stats-mode: no column 'q'", options={"fields.q.stats-mode": "full"}
    ),
    Refused("a sequence of no column", "sequence.field = 'q': no column", options={"sequence.field": "q"}),
    Refused("a sequence of nothing", "sequence.field = ''.*unset", options={"sequence.field": ""}),
    Refused("a sequence with a gap", "sequence.field = 'n,,v'.*is empty", options={"sequence.field": "n,,v"}),
    Refused("a sequence without an order", "field = 'a': 'a' is ARRAY.*no order", options={"sequence.field": "a"}),
    Refused("a sequence named twice", "'n' occurs 2 times", options={"sequence.field": "n,n"}),
    Refused(
        "a sequence that is aggregated",
        "unset fields.n.aggregate-function",
        options={"sequence.field": "n", "fields.n.aggregate-function": "max"},
    ),
    Refused("a sequence and the first row", "first", options={"sequence.field": "n", "merge-engine": "first-row"}),
    Refused(
        "a sequence over partitions",
        "sequence.field = 'n': the primary key .* lacks",
        partition_by=["p"],
        options={"sequence.field": "n", "bucket": "-1"},
    ),
    Refused("an unknown direction", "sort-order = 'desc'", options={"sequence.field.sort-order": "desc"}),
    Refused("row kinds of no column", "rowkind.field: no column 'q'", options={"rowkind.field": "q"}),
    Refused("row kinds of a number", "rowkind.field = 'n': the column is INT", options={"rowkind.field": "n"}),
    Refused("an age of no column", "time-field: no column 'q'", options={"record-level.time-field": "q"}),
    Refused("an age of a text", "time-field = 'v': the column is STRING", options={"record-level.time-field": "v"}),
    Refused(
        "a changelog without a key",
        "changelog-producer = 'input'",
        primary_key=(),
        options={"changelog-producer": "input"},
    ),
    Refused(
        "a changelog of input and the first row",
        "only allows none or lookup",
        options={"changelog-producer": "input", "merge-engine": "first-row"},
    ),
    Refused(
        "overwrites shown twice",
        "streaming-read-overwrite = 'true'.*unset",
        options={"changelog-producer": "lookup", "streaming-read-overwrite": "true"},
    ),
    Refused(
        "overwrites of an append table",
        "append-overwrite",
        primary_key=(),
        options={"streaming-read-overwrite": "true"},
    ),
    Refused(
        "full compactions and lookups",
        "full-compaction.delta-commits.*lookup",
        options={"full-compaction.delta-commits": "3", "changelog-producer": "lookup"},
    ),
    Refused(
        "full compactions without buckets", "unset it", primary_key=(), options={"full-compaction.delta-commits": "3"}
    ),
    Refused(
        "deletion vectors and full compactions",
        "deletion-vectors.enabled.*lookup",
        options={"deletion-vectors.enabled": "true", "changelog-producer": "full-compaction"},
    ),
    Refused(
        "deletion vectors and the first row",
        "deletes nothing",
        options={"deletion-vectors.enabled": "true", "merge-engine": "first-row"},
    ),
    Refused("deletion vectors of a kind", "neither true nor false", options={"deletion-vectors.enabled": "64"}),
    Refused("order of snapshots", "needs a primary key and write-only", options={"sequence.snapshot-ordering": "true"}),
    Refused("row ids with a key", "row-tracking.enabled.*append", options={"row-tracking.enabled": "true"}),
    Refused(
        "data evolution without row ids",
        "needs row-tracking",
        primary_key=(),
        options={"data-evolution.enabled": "true"},
    ),
    Refused("another kind of table", "type = object-table", options={"type": "object-table"}, error=UnsupportedFeature),
    Refused("a place of its own", "option path = '/tmp'.*unset", options={"path": "/tmp"}),
    Refused("creating what is created", "auto-create", options={"auto-create": "true"}),
    Refused(
        "nanoseconds in Avro",
        r"file.format = avro: .*'c' TIMESTAMP\(9\)",
        one("TIMESTAMP(9)"),
        options={"file.format": "avro"},
    ),
    Refused(
        "microseconds of the day in Avro", r"'c' TIME\(6\)", one("TIME(6)"), options={"file.format.per.level": "5:avro"}
    ),
    Refused("variants in ORC", "'c' VARIANT", one("VARIANT"), options={"file.format": "orc"}),
    Refused("variants in Avro changelogs", "'c' VARIANT", one("VARIANT"), options={"changelog-file.format": "avro"}),
    Refused("vectors in ORC", "'c' VECTOR", one("VECTOR<FLOAT, 2>"), options={"file.format": "orc"}),
]

REFUSALS = [*COLUMN_REFUSALS, *KEY_REFUSALS, *BUCKET_REFUSALS, *OPTION_REFUSALS]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda c: c.id)
def test_contradictory_schemas_are_refused_with_name_reason_and_remedy(case: Refused) -> None:
    with pytest.raises(case.error, match=case.message) as raised:
        create(case.columns, case.primary_key, case.partition_by, case.options)
    assert type(raised.value) is case.error


def test_a_single_name_is_not_split_into_characters() -> None:
    with pytest.raises(BadInput, match=r"primary_key = 'k': pass a list of column names, \['k'\]"):
        create(primary_key="k")
