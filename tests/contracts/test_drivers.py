"""`tidelake ingest run` and `tidelake spark run` make the same tables from one configuration and one history.

Or they refuse it in the same words. What only one of them does, the other refuses by name (`test_pipeline_query.py`).
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import fastavro
import pytest
from hypothesis import given, settings
from msgspec import structs

import tidelake
from tests.ingest.formats.debezium.changes import Record
from tests.ingest.formats.envelopes.histories import COLUMNS, RENDERED, Change, debezium, histories, plain_json
from tests.support.cases import recorded_folder, sample_folders
from tests.support.levels import examples
from tests.support.schema_registry import schema_registry
from tests.tidelake.shop_log import write_shop_log
from tidelake.errors import TidelakeError
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.pipeline.service import run as run_pipeline
from tidelake.ingest.settings import Config
from tidelake.spark.pipeline_query import start_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMES: Final = ("failed_at",)
"""Columns that say when a driver ran."""

Write = Callable[[Path], object]
"""Puts change-log files into a folder that there is."""


@dataclass(frozen=True)
class History:
    """settings: of the configuration, as YAML, all but warehouse and source. schemas: those of a registry."""

    write: Write
    settings: str
    schemas: Path | None = None

    @contextmanager
    def config(self, home: Path) -> Iterator[Config]:
        (home / "log").mkdir(exist_ok=True)
        self.write(home / "log")
        with schema_registry(self.schemas) as registry:
            source = f"warehouse: unused\nsource: {{type: change-log-folder, path: {home}/log, until: end}}\n"
            given = self.settings.replace("REGISTRY", registry.url)
            yield parse_config(source + given, "both.yaml", pipeline="both")


@dataclass(frozen=True)
class Outcome:
    """tables: by name, columns, key, options and rows. dead_letters: place, kind, reason. error: what ended the
    driver."""

    tables: Mapping[str, Any] = field(default_factory=dict)
    dead_letters: Sequence[tuple[Any, ...]] = ()
    error: str | None = None


def on_asyncio(config: Config) -> None:
    asyncio.run(run_pipeline(config))


def on_spark(spark: SparkSession, config: Config, checkpoint: Path) -> None:
    running = start_query(spark, config, str(checkpoint))
    with suppress(Exception):  # `has_ended` raises it in our words
        running.query.awaitTermination()
    assert running.has_ended()


def outcome(drive: Callable[[Config], None], config: Config, lake: Path) -> Outcome:
    error = None
    try:
        drive(structs.replace(config, warehouse=str(lake)))
    except* TidelakeError as errors:
        error = reason_of(str(first_of(errors)).replace(str(lake), "LAKE"))
    return Outcome({} if error else tables_in(lake), dead_letters_in(lake), error)


def reason_of(error: str) -> str:
    """Without what to do: not all that a service can do about a record can be done on Spark."""
    return re.split(r"\. (?:Fix|Decide|Delete) |; `--skip-record ", error)[0]


def first_of(errors: BaseException) -> BaseException:
    while isinstance(errors, BaseExceptionGroup):
        (errors, *_) = errors.exceptions
    return errors


def tables_in(lake: Path) -> dict[str, Any]:
    catalog = tidelake.open_catalog(str(lake))
    found = {}
    for database in catalog.list_databases():
        for name in catalog.list_tables(database):
            table = catalog.table(f"{database}.{name}")
            held = table.scan().to_arrow()
            rows = sorted(map(repr, held.drop_columns([c for c in TIMES if c in held.schema.names]).to_pylist()))
            found[f"{database}.{name}"] = (table.schema, table.primary_key, table.options, rows)
    return found


def dead_letters_in(lake: Path) -> list[tuple[Any, ...]]:
    lines = [line for path in lake.rglob("*dead-letters/*.jsonl") for line in path.read_text().splitlines()]
    return sorted(
        tuple(json.loads(line)[name] for name in ("topic", "partition", "offset", "kind", "reason")) for line in lines
    )


def both(history: History, spark: SparkSession, home: Path) -> tuple[Outcome, Outcome]:
    with history.config(home) as config:
        ours = outcome(on_asyncio, config, home / "asyncio")
        theirs = outcome(lambda c: on_spark(spark, c, home / "checkpoint"), config, home / "spark")
    return ours, theirs


# ---------------------------------------------------------------- histories


def lines_of(records: Sequence[Record], topic: str = "depot.orders", first: int = 0) -> Write:
    place = {"topic": topic, "partition": 0, "timestamp_ms": 1_760_000_000_000}
    lines = [
        {**place, "offset": n, "key": r.key and r.key.decode(), "value": None if r.value is None else r.value.decode()}
        for n, r in enumerate(records, first)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    return lambda folder: (folder / f"{first + 1}.jsonl").write_text(text, encoding="utf-8")


def messages(values: Sequence[bytes], headers: Sequence[Mapping[str, str]] | None = None) -> Write:
    """Records without a key, with headers by name."""
    lines = [
        {
            "topic": "depot.events",
            "partition": 0,
            "offset": n,
            "timestamp_ms": 1_760_000_000_000,
            "value_base64": base64.b64encode(value).decode(),
            "headers": list((headers[n] if headers else {}).items()),
        }
        for n, value in enumerate(values)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    return lambda folder: (folder / "1.jsonl").write_text(text, encoding="utf-8")


def of_a_union(*values: Any) -> History:
    """Avro without frames, whose column `what` is a union of two records and a number."""
    by = [{"name": "by", "type": ["null", "string"]}]
    union = ["null", *({"type": "record", "name": name, "fields": by} for name in ("Paid", "Sent")), "long"]
    fields = [{"name": "id", "type": "long"}, {"name": "what", "type": union}]
    schema = {"type": "record", "name": "Event", "namespace": "shop", "fields": fields}

    def written(number: int, value: Any) -> bytes:
        out = BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), {"id": number, "what": value})
        return out.getvalue()

    return History(
        messages([written(number, value) for number, value in enumerate(values)]),
        f"format: avro\nformat_options: {{schema: '{json.dumps(schema)}'}}\n"
        "tables: [{name: shop.events, match: '*', primary_key: [id], options: {bucket: 2}}]\n",
    )


def in_two_batches(first: Sequence[Record], second: Sequence[Record]) -> Write:
    """A batch of Spark takes eight files."""
    fillers = [Record(None, None)] * (7 if first else 0)
    files = [*([first] if first else []), *([one] for one in fillers), second]

    def write(folder: Path) -> None:
        offset = 0
        for number, records in enumerate(files):
            lines_of(records, first=offset)(folder)
            (folder / f"{offset + 1}.jsonl").rename(folder / f"part-{number}.jsonl")
            offset += len(records)

    return write


def samples(name: str) -> History:
    """The records of `recorded/formats`: odd ones, bad ones and DDL among them."""
    folder = recorded_folder() / "formats" / name
    schemas = folder / "schemas.json"
    options = ", schema_registry_url: 'REGISTRY'" if schemas.exists() else ""
    key = {"debezium-bson": "_id", "ogg-json": "ID"}.get(name, "id")
    # Canal's updates leave out what did not change: in a table of several sources, columns of others, too.
    match = {"canal-json": "depot.parcel"}.get(name, "*")
    return History(
        lambda log: shutil.copyfile(folder / "messages.jsonl", log / "1.jsonl"),
        f"format: {name}\nformat_options: {{truncates: skip{options}}}\nerrors: {{tolerance: all}}\n"
        f"tables: [{{name: samples.rows, match: ['{match}'], options: {{bucket: 1}}, primary_key: [{key}]}}]\n",
        schemas if schemas.exists() else None,
    )


def change(op: str, after: Any = None, before: Any = None) -> Record:
    source = {"connector": "postgresql", "db": "shop", "schema": "depot", "table": "orders"}
    value = {"op": op, "before": before, "after": after, "source": source}
    key = after or before
    return Record(key and json.dumps({"id": key.get("id")}).encode(), json.dumps(value).encode())


def of(table: str, record: Record) -> Record:
    """The same change of another table."""
    value = json.loads(record.value or b"")
    return Record(record.key, json.dumps({**value, "source": {**value["source"], "table": table}}).encode())


def canal(type_: str, row: dict[str, str], old: dict[str, str] | None = None) -> Record:
    types = {name: "BIGINT" if name == "id" else "VARCHAR(9)" for name in row}
    value = {"type": type_, "database": "depot", "table": "orders", "mysqlType": types, "pkNames": ["id"]}
    return Record(None, json.dumps({**value, "data": [row], "old": old and [old]}).encode())


def document(id_: Any) -> Record:
    source = {"connector": "mongodb", "db": "shop", "collection": "orders"}
    value = {"op": "c", "after": json.dumps({"_id": id_, "n": 1}), "source": source}
    return Record(json.dumps({"id": json.dumps(id_)}).encode(), json.dumps(value).encode())


OID: Final = "65a0b1c2d3e4f5a6b7c8d9e0"
DOCUMENTS: Final = (
    "format: debezium-bson\ntables: [{name: shop.orders, match: '*', primary_key: [_id], options: {bucket: 2}}]\n"
)
A: Final = change("c", {"id": 1, "note": "a"})
B: Final = change("c", {"id": 2, "note": "b"})
ORDERS: Final = "tables: [{name: shop.orders, match: depot.orders, primary_key: [id], options: {bucket: 2}}]\n"
APPEND: Final = "tables: [{name: shop.orders, match: depot.orders, options: {bucket: -1}}]\n"
BROKEN: Final = Record(b'{"id":3}', b"{broken")
DROPPED: Final = Record(
    None,
    json.dumps(
        {
            "source": {"connector": "mysql", "db": "depot", "table": "orders"},
            "databaseName": "depot",
            "ddl": "ALTER TABLE depot.orders DROP COLUMN note",
            "tableChanges": [],
        }
    ).encode(),
)
TYPED: Final = ORDERS.replace("options:", "columns: {id: BIGINT, n: INT}, options:")
TRUNCATE: Final = change("t")
LEFT_OUT: Final = "__debezium_unavailable_value"
GROWN: Final = change("c", {"id": 4, "note": "d", "extra": 5})
SOFT: Final = ORDERS.replace("options", "deletes: soft, options")
FIRST: Final = [
    *(A, B, GROWN, change("c", {"id": 5, "note": None}), change("c", {"id": 6, "note": "é"})),
    change("d", None, {"id": 1}),  # of this batch
    change("d", None, {"id": 9}),  # of a row that never was
    change("u", {"id": 6, "note": LEFT_OUT}),
    change("u", {"id": 7, "note": "y"}, {"id": 6, "note": "é"}),  # the old key stays, deleted
]
SECOND: Final = [
    change("d", None, {"id": 2}),  # of the batch before
    change("d", None, {"id": 4, "note": "not the last value"}),
    change("d", None, {"id": 5}),
    change("c", {"id": 5, "note": "again"}),
    change("d", None, {"id": 1}),  # deleted already
    change("u", {"id": 1, "note": LEFT_OUT}),
    change("u", {"id": 7, "note": "x"}),
    change("c", {"id": 8, "note": "z"}),
    change("d", None, {"id": 8}),
    change("d", None, {"id": 8}),
]
SHAPED: Final = "mask_salt: of-this-test\n" + ORDERS
DERIVED: Final = "computed_columns: {doubled: 'truncate(id, 2)'}, metadata_columns: [topic, offset, op_ts], options"

MANY: Final = "tables: [{name: 'shop.{table}', options: {bucket: 2}}]\n"
OF_MANY: Final = [
    *(
        A,
        of("items", A),
        of("notes_tmp", A),
        of("items", GROWN),
        B,
        of("Ürün", A),
        of("items", change("d", None, {"id": 4})),
    ),
    *(BROKEN, of("items", change("u", {"id": 1, "note": LEFT_OUT})), of("Ürün", change("t"))),
]
"""Records of three tables, and of one that is left out."""
WITHOUT_KEYS: Final = [Record(None, one.value) for one in (A, of("items", A), of("tags", change("c", {"tag": "x"})))]
SEVERAL: Final = """tables:
  - {name: shop.orders, match: depot.orders, primary_key: [id], options: {bucket: 2}}
  - {name: audit.orders, match: depot.orders, mode: append, options: {bucket: -1}}
  - {name: shop.by_note, match: 'depot.*', keep_columns: [note, id], key_from_records: false, primary_key: [note],
     columns: {id: BIGINT}, options: {bucket: 1, merge-engine: aggregation, fields.id.aggregate-function: sum}}
"""

ALIKE: Final = {
    "an entry of many tables": History(
        lines_of(OF_MANY),
        "errors: {tolerance: all}\n" + MANY.replace("options", "source_tables: {excluding_tables: '.*_tmp'}, options"),
    ),
    "an entry of many tables, new ones in the second batch": History(
        in_two_batches([A, of("items", A)], [of("items", B), of("later", A), of("later", GROWN), B]), MANY
    ),
    "an entry of many tables, after batches without any": History(in_two_batches([], [A, of("items", A)]), MANY),
    "an entry of many tables beside single ones": History(
        lines_of([A, of("items", A), of("parts", A), B]), ORDERS.replace("}]\n", "}, " + MANY[len("tables: [") :])
    ),
    "two entries of many tables": History(
        lines_of([A, of("items", A), of("part_a", A), of("part_b", B)]),
        "tables: [{name: 'parts.{table}', match: 'depot.part_*'}, {name: 'shop.{schema}_{table}'}]\n",
    ),
    "an entry of many tables, some without its key and partition": History(
        lines_of(WITHOUT_KEYS),
        MANY.replace("options: {bucket: 2}", "primary_key: [id], partition_by: [note], options: {bucket: -1}"),
    ),
    "an entry of many tables with shaped columns": History(
        lines_of([A, of("items", A), of("items", GROWN)]),
        "mask_salt: of-this-test\n"
        + MANY.replace("options", "masks: {note: hash}, metadata_columns: [topic, offset], options"),
    ),
    "an entry of many tables by topics": History(
        lines_of([A, of("items", B)], topic="eu.v1.orders"),
        "tables: [{name: 'lake.{region}_{table}', source_tables: {topic_parts: '(?P<region>[a-z]+)\\.v1\\..*'}}]\n",
    ),
    "an entry of many tables, one with a name that no table can have": History(lines_of([A, of("a$b", A)]), MANY),
    "an entry of many tables, two with a name that differs only in case": History(
        lines_of([A, of("Orders", A)]), MANY.replace("options", "source_tables: {lower_case: true}, options")
    ),
    "an entry of many tables, one emptied": History(
        lines_of([A, of("items", A), of("items", TRUNCATE), of("items", B)]), MANY
    ),
    "an entry of many tables, and only bad records": History(
        lines_of([BROKEN, BROKEN]), "errors: {tolerance: all}\n" + MANY
    ),
    "an entry of many tables, and a bad record that is not tolerated": History(lines_of([BROKEN]), MANY),
    "records of several tables": History(
        lines_of([A, B, of("items", change("c", {"id": 5, "note": "b"})), change("d", None, {"id": 2, "note": "b"})]),
        SEVERAL,
    ),
    "records of several tables, some bad, and a column that one of them leaves out": History(
        lines_of([A, BROKEN, GROWN, change("u", {"id": 9, "note": LEFT_OUT})]), "errors: {tolerance: all}\n" + SEVERAL
    ),
    **{f"samples of {path.name}": samples(path.name) for path in sample_folders()},
    "three tables, one from another topic": History(
        write_shop_log,
        "tables: [{name: shop.customers}, {name: shop.orders, options: {bucket: 3}}, {name: shop.stock}]\n",
    ),
    "events of an outbox, one without its id": History(
        messages(
            [b'{"n": 1.50}', b'"text"', b"null", b"{}"],
            [{"id": "a", "eventType": "Bestellt ü"}, {"id": "b"}, {"id": "a"}, {"eventType": "no id"}],
        ),
        "format: debezium-outbox\nerrors: {tolerance: all}\n"
        "tables: [{name: shop.events, match: '*', options: {bucket: 2}}]\n",
    ),
    "records of an Avro union": of_a_union(("shop.Paid", {"by": "ü🦊"}), ("shop.Sent", {"by": None}), None, 7),
    "a key that changes": History(
        lines_of(
            [
                A,
                B,
                change("u", {"id": 3, "note": "a"}, {"id": 1, "note": "a"}),
                change("d", None, {"id": 2, "note": "b"}),
            ]
        ),
        ORDERS,
    ),
    "buckets that an index chooses": History(
        lines_of([A, B, change("u", {"id": 1, "note": "c"}), change("d", None, {"id": 2, "note": "b"}), B]),
        ORDERS.replace("bucket: 2", "bucket: -1, dynamic-bucket.target-row-num: 1, dynamic-bucket.initial-buckets: 2"),
    ),
    "keys that move between partitions": History(
        lines_of(
            [
                A,
                B,
                change("u", {"id": 1, "note": "b"}),
                change("u", {"id": 3, "note": "c"}, {"id": 2, "note": "b"}),
                change("u", {"id": 1, "note": "a"}),
                change("d", None, {"id": 3, "note": "c"}),
                A,
            ]
        ),
        ORDERS.replace("bucket: 2", "bucket: -1, dynamic-bucket.target-row-num: 1").replace(
            "options", "partition_by: [note], options"
        ),
    ),
    "an append table": History(lines_of([Record(None, r.value) for r in (A, B, A)]), APPEND),
    "a truncate that is skipped": History(lines_of([A, TRUNCATE, B]), "format_options: {truncates: skip}\n" + ORDERS),
    "bad records set aside": History(lines_of([A, BROKEN, B, BROKEN]), "errors: {tolerance: all}\n" + ORDERS),
    "a truncate that must not be": History(lines_of([A, TRUNCATE, B]), "format_options: {truncates: fail}\n" + ORDERS),
    "a bad record": History(lines_of([A, BROKEN, B]), ORDERS),
    "bad records in a table": History(
        lines_of([A, BROKEN, B, BROKEN]),
        "errors: {tolerance: all, dead_letters: {table: ops.letters}}\n" + ORDERS,
    ),
    "a new column": History(lines_of([A, GROWN, B, change("c", {"id": 5, "other": True})]), ORDERS),
    "updates of rows the table lacks, before their new column came and after": History(
        lines_of(
            [
                canal("INSERT", {"id": "1", "note": "a"}),
                canal("UPDATE", {"id": "2", "note": "b"}, {"note": "x"}),
                canal("INSERT", {"id": "3", "note": "c", "extra": "y"}),
                canal("UPDATE", {"id": "4", "note": "d"}, {"note": "x"}),
                canal("UPDATE", {"id": "3", "note": "e"}, {"note": "c"}),
            ]
        ),
        "format: canal-json\nerrors: {tolerance: all}\n" + ORDERS,
    ),
    "an update sent again whose row was deleted since, with what replaces it and without": History(
        lines_of(
            [
                A,
                B,
                change("d", None, {"id": 1, "note": "a"}),
                change("d", None, {"id": 2, "note": "b"}),
                change("u", {"id": 1, "note": LEFT_OUT}),
                change("u", {"id": 2, "note": LEFT_OUT}),
                change("u", {"id": 1, "note": "whole"}),
            ]
        ),
        "errors: {tolerance: all}\n" + ORDERS,
    ),
    "a value that outgrows its column, and a new column": History(
        lines_of([change("c", {"id": 1, "n": 1}), change("c", {"id": 2, "n": 3_000_000_000, "extra": "x"}), A]), TYPED
    ),
    "a value that no wider type holds": History(
        lines_of([change("c", {"id": 1, "n": 1}), change("c", {"id": 2, "n": "text"})]), TYPED
    ),
    "a key that outgrows its column": History(
        lines_of([A, B, change("c", {"id": 3_000_000_000, "note": "c"}), change("u", {"id": 1, "note": "d"})]),
        ORDERS.replace("options:", "columns: {id: INT}, options:"),
    ),
    "a key that outgrows its column in a table that must not be rewritten": History(
        lines_of([A, B, change("c", {"id": 3_000_000_000, "note": "c"})]),
        "schema_evolution: {exclude: [alter.column.type]}\n"
        + ORDERS.replace("options:", "columns: {id: INT}, options:"),
    ),
    "a column that is not to be added": History(lines_of([A, GROWN]), "schema_evolution: {mode: exception}\n" + ORDERS),
    "a column that is passed over": History(
        lines_of([A, GROWN, B]), "schema_evolution: {exclude: [add.column]}\n" + ORDERS
    ),
    "a value too large for a column that stays": History(
        lines_of([change("c", {"id": 1, "n": 1}), change("c", {"id": 2, "n": 3_000_000_000})]),
        "schema_evolution: {mode: ignore}\nerrors: {tolerance: all}\n" + TYPED,
    ),
    "DDL that is passed over": History(lines_of([A, DROPPED, B]), ORDERS),
    "DDL that stops": History(lines_of([A, DROPPED, B]), "schema_evolution: {mode: exception}\n" + ORDERS),
    "documents with ids of several types": History(
        lines_of([document({"$oid": OID}), document(7), document("x")]), DOCUMENTS
    ),
    "columns that are renamed, masked and left out, with a new one": History(
        lines_of([A, change("c", {"id": 2, "note": "b", "email": "x@y.z"}), GROWN, change("d", None, {"id": 1})]),
        SHAPED.replace(
            "options:",
            "rename_columns: {note: text}, drop_columns: [extra], masks: {email: hash}, "
            "columns: {email: STRING}, options:",
        ),
    ),
    "only some columns, and a key that changes under a mask": History(
        lines_of([A, B, change("u", {"id": 3, "note": "c", "more": 1}, {"id": 1, "note": "a"})]),
        SHAPED.replace("options:", "keep_columns: [id, note], masks: {id: hash}, columns: {id: STRING}, options:"),
    ),
    "a filter that rows leave, with a value that an update left out": History(
        lines_of([A, B, change("u", {"id": 1, "note": "x"}), change("u", {"id": 2, "note": LEFT_OUT}), GROWN]),
        "errors: {tolerance: all}\n" + ORDERS.replace("options:", "filter: \"note <> 'x'\", options:"),
    ),
    "bad records of a table with masks": History(
        lines_of([A, change("c", {"id": 2, "note": "secret"}), BROKEN, change("u", {"id": 9, "note": LEFT_OUT})]),
        "errors: {tolerance: all}\n" + ORDERS.replace("options:", "masks: {note: redact}, options:"),
    ),
    "a bad record of a table with masks": History(
        lines_of([A, BROKEN]), ORDERS.replace("options:", "masks: {note: redact}, options:")
    ),
    "a mask of a column that the table lacks": History(
        lines_of([A]), ORDERS.replace("options:", "masks: {email: redact}, options:")
    ),
    "computed and metadata columns, and a new column": History(
        lines_of([A, B, GROWN, change("u", {"id": 1, "note": LEFT_OUT}), change("d", None, {"id": 2, "note": "b"})]),
        ORDERS.replace("options", DERIVED),
    ),
    "a column computed of a column that the records lack": History(
        lines_of([A]), ORDERS.replace("options", "computed_columns: {doubled: 'truncate(none, 2)'}, options")
    ),
    "a history of all changes": History(
        lines_of([A, B, change("u", {"id": 1, "note": "c"}), GROWN, change("d", None, {"id": 2, "note": "b"})]),
        APPEND.replace("options:", "mode: append, options:"),
    ),
    **{
        f"deleted rows that stay, {kind}": History(
            in_two_batches(FIRST, SECOND), "errors: {tolerance: all}\n" + settings
        )
        for kind, settings in {
            "in a fixed number of buckets": SOFT,
            "of a changelog by lookup": SOFT.replace("bucket: 2", "bucket: 2, changelog-producer: lookup"),
            "with deletion vectors": SOFT.replace("bucket: 2", "bucket: 2, deletion-vectors.enabled: true"),
            "in buckets that an index chooses": SOFT.replace(
                "bucket: 2", "bucket: -1, dynamic-bucket.target-row-num: 1"
            ),
            "in partitions of another column": SOFT.replace("bucket: 2", "bucket: -1").replace(
                "options", "partition_by: [note], options"
            ),
            "with a filter that rows leave": SOFT.replace("options", "filter: \"note <> 'x'\", options"),
        }.items()
    },
    "deleted rows that stay, and a truncate": History(lines_of([A, TRUNCATE, B]), SOFT),
    "deleted rows that stay, and a truncate that is skipped": History(
        lines_of([A, TRUNCATE, change("d", None, {"id": 1}), B]), "format_options: {truncates: skip}\n" + SOFT
    ),
    "deleted rows that can't stay, as staged rows can't be looked up": History(
        lines_of([A]), SOFT.replace("bucket: 2", "bucket: -2")
    ),
    "a history whose updates leave values out": History(
        lines_of([A, change("u", {"id": 1, "note": LEFT_OUT}), change("u", {"id": 2, "note": "b"}, {"id": 1})]),
        "errors: {tolerance: all}\n" + APPEND.replace("options:", "mode: append, options:"),
    ),
    "as many bad records as are allowed": History(
        lines_of([A, BROKEN, B, BROKEN]), "errors: {tolerance: 2}\n" + ORDERS
    ),
    "a record without the table's key": History(lines_of([A, change("c", {"note": "x"})]), ORDERS),
}


@pytest.mark.interop
@pytest.mark.parametrize("history", ALIKE.values(), ids=ALIKE.keys())
def test_both_drivers_give_the_same_table(history: History, spark: SparkSession, tmp_path: Path) -> None:
    ours, theirs = both(history, spark, tmp_path)
    assert theirs == ours
    assert ours.tables or ours.error or ours.dead_letters


FORMATS: Final[Mapping[str, Callable[[Sequence[Change]], Iterator[Record]]]] = {
    **RENDERED,
    "debezium-json": debezium,
    "json": lambda changes: iter(plain_json([one.after for one in changes if one.after])),
}


@pytest.mark.interop
@pytest.mark.parametrize("name", FORMATS)
def test_both_drivers_give_the_same_table_for_random_changes(
    name: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    columns = ", ".join(f"{column}: '{type_}'" for column, type_ in COLUMNS.items())

    @settings(max_examples=examples(6))
    @given(histories())
    def alike(changes: Sequence[Change]) -> None:
        of = (
            f"format: {name}\ntables: [{{name: shop.orders, match: '*', primary_key: [id], options: {{bucket: 2}}, "
            f"columns: {{{columns}}}}}]\n"
        )
        ours, theirs = both(History(lines_of(list(FORMATS[name](changes))), of), spark, tmp_path_factory.mktemp("both"))
        assert theirs == ours
        assert ours.error is None

    alike()


@pytest.mark.interop
def test_an_id_of_another_type_is_refused_after_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    """The id could be the same row as one that an earlier run wrote. The row stays, and the record stops the driver."""
    drivers: Mapping[str, Callable[[Config], None]] = {
        "asyncio": on_asyncio,
        "Spark": lambda config: on_spark(spark, config, Path(config.warehouse) / "checkpoint"),
    }
    for name, drive in drivers.items():
        home = tmp_path / name
        home.mkdir()
        with History(lines_of([document({"$oid": OID})]), DOCUMENTS).config(home) as config:
            before = outcome(drive, config, home / "lake")
        with History(lines_of([document(OID)], first=1), DOCUMENTS).config(home) as config:
            after = outcome(drive, config, home / "lake")
        assert before.error is None
        assert after.error is not None, name
        assert f"{OID} is a text, but {OID}, of another record, is an ObjectId" in after.error
        assert tables_in(home / "lake") == before.tables


@pytest.mark.interop
def test_one_bad_record_too_many_ends_the_driver(spark: SparkSession, tmp_path: Path) -> None:
    """The service sets the first one aside, and stops at the second. Spark refuses the batch with both."""
    records, tolerates_one = lines_of([A, BROKEN, B, BROKEN]), "errors: {tolerance: 1}\n" + ORDERS
    ours, theirs = both(History(records, tolerates_one), spark, tmp_path)
    assert ours.error is not None
    assert theirs.error is not None
    assert theirs.error == ours.error.split(". This run has kept")[0]
    assert [place[2] for place in ours.dead_letters] == [1]
    assert list(theirs.dead_letters) == []
    assert not list((tmp_path / "spark").rglob("snapshot-*"))
    assert not list((tmp_path / "spark").rglob("data-*"))


@pytest.mark.interop
def test_tasks_of_one_batch_compare_their_ids(spark: SparkSession, tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        for topic, id_ in (("a", {"$oid": OID}), ("b", OID)):
            (folder / topic).mkdir()
            lines_of([document(id_)], topic)(folder / topic)
            (folder / topic / "1.jsonl").rename(folder / f"{topic}.jsonl")

    _, theirs = both(History(write, DOCUMENTS), spark, tmp_path)
    assert theirs.error is not None
    assert "could become one row" in theirs.error
