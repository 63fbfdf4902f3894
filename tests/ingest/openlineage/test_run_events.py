"""The events of real runs, as a real HTTP server and a real broker get them."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import aiokafka
import jsonschema
import pytest
from openlineage.client.naming.dataset import Kafka, LocalFileSystem
from referencing import Registry, Resource

import tidelake
from tests.ingest.pipeline.fakes import until
from tests.support.external_services import OPENLINEAGE_SPEC
from tests.support.kafka_broker import KafkaBroker
from tests.support.openlineage_server import OpenLineageServer, openlineage_server
from tests.support.service import Service
from tidelake.errors import BadInput, RecordRefused
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.openlineage import dataset_names
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.ingest.pipeline.pipeline import Pipeline
from tidelake.ingest.settings import Config

DOCS = Path(__file__).parent.parent.parent.parent / "docs"
SALT = "a-salt-that-stays-here"


@pytest.fixture
def server() -> Iterator[OpenLineageServer]:
    with openlineage_server() as found:
        yield found


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No file or variable of the machine's owner takes part."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def record(offset: int, table: str = "orders", value: Any = None, **columns: Any) -> str:
    change = {"before": None, "after": columns, "op": "c", "source": {"db": "shop", "table": table}}
    return json.dumps(
        {
            "topic": f"shop.{table}",
            "partition": 0,
            "offset": offset,
            "timestamp_ms": 1_795_196_040_376,
            "key": json.dumps({"id": columns.get("id")}),
            "value": json.dumps(change) if value is None else value,
        }
    )


def write_log(path: Path, name: str, *lines: str) -> None:
    (path / "in").mkdir(exist_ok=True)
    (path / "in" / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))


def config_of(path: Path, lineage: Any, *flags: str, **more: Any) -> Config:
    settings = {
        "warehouse": f"{path}/lake",
        "source": {"type": "change-log-folder", "path": f"{path}/in", "poll_interval_ms": 10, "until": "end"},
        "tables": [{"name": "db.orders"}],
        "checkpoint": {"interval_ms": 30},
        "lineage": lineage,
        **more,
    }
    return parse_config(json.dumps(settings), "shop.yaml", flags, {}, pipeline="shop")


def http(server: OpenLineageServer, **more: Any) -> dict[str, Any]:
    return {"transport": {"type": "http", "url": server.url, "retry": {"total": 0}}, **more}


def run(config: Config) -> Pipeline:
    pipeline = build_pipeline(config)
    asyncio.run(pipeline.run())
    return pipeline


def facets(event: Mapping[str, Any], table: str) -> Any:
    (found,) = (one for one in event["outputs"] if one["name"] == f"paimon.{table}")
    return {**found["facets"], **found["outputFacets"]}


def test_a_run_reports_its_start_its_progress_and_its_end(server: OpenLineageServer, tmp_path: Path) -> None:
    write_log(tmp_path, "1", *(record(n, id=n, name="ä") for n in range(3)))
    pipeline = run(config_of(tmp_path, http(server, namespace="prod")))
    assert server.kinds() == ["START", "RUNNING", "COMPLETE"]
    assert len({event["run"]["runId"] for event in server.events}) == 1
    assert {(event["job"]["namespace"], event["job"]["name"]) for event in server.events} == {("prod", "shop")}
    end = server.events[-1]
    UUID(end["run"]["runId"])
    assert end["job"]["facets"]["jobType"]["processingType"] == "BATCH"
    (read,) = end["inputs"]
    folder = LocalFileSystem(f"{tmp_path}/in")
    assert (read["namespace"], read["name"]) == (folder.get_namespace(), folder.get_name())
    assert read["inputFacets"]["inputStatistics"]["rowCount"] == 3
    positions = end["run"]["facets"]["tidelake_positions"]
    assert positions["partitions"] == [{"topic": "shop.orders", "partition": 0, "committed": 3}]
    of = facets(end, "db.orders")
    assert end["outputs"][0]["namespace"] == f"file:{tmp_path}/lake"
    assert [(f["name"], f["type"]) for f in of["schema"]["fields"]] == [("id", "STRING NOT NULL"), ("name", "STRING")]
    assert of["outputStatistics"]["rowCount"] == 3
    table = tidelake.open_catalog(f"{tmp_path}/lake").table("db.orders")
    assert of["version"]["datasetVersion"] == str(table.snapshots()[-1].id)
    (link,) = of["symlinks"]["identifiers"]
    assert (link["namespace"], link["name"]) == ("file", f"{tmp_path}/lake/db.db/orders")
    assert dict(pipeline.observed.lineage_events) == {"sent": 3}
    assert not (tmp_path / "lake" / "shop.lineage").exists()


def test_each_column_says_from_which_column_of_the_records_it_is_made(
    server: OpenLineageServer, tmp_path: Path
) -> None:
    write_log(tmp_path, "1", record(0, id=1, mail="a@b.example", country="DE", phone="123", note="x", at="2026-01-02"))
    table = {
        "name": "db.orders",
        "drop_columns": ["note"],
        "rename_columns": {"mail": "email"},
        "masks": {"email": "hash", "phone": "keep_last(2)"},
        "computed_columns": {"tail": "substring(phone, 1)", "upper_country": "upper(country)"},
        "metadata_columns": ["offset"],
        "filter": "country = 'DE'",
    }
    run(config_of(tmp_path, http(server), tables=[table], mask_salt=SALT))
    lineage = facets(server.events[-1], "db.orders")["columnLineage"]
    place = {"namespace": "file", "name": f"{tmp_path}/in"}
    found = {}
    for column, fields in lineage["fields"].items():
        (origin,) = fields["inputFields"]
        assert {"namespace": origin["namespace"], "name": origin["name"]} == place
        (how,) = origin["transformations"]
        found[column] = (origin["field"], how["type"], how["subtype"], how["description"], how["masking"])
    assert found == {
        "id": ("id", "DIRECT", "IDENTITY", "", False),
        "email": ("mail", "DIRECT", "TRANSFORMATION", "mask hash", True),
        "country": ("country", "DIRECT", "IDENTITY", "", False),
        "phone": ("phone", "DIRECT", "TRANSFORMATION", "mask keep_last(2)", True),
        "at": ("at", "DIRECT", "IDENTITY", "", False),
        "tail": ("phone", "DIRECT", "TRANSFORMATION", "mask keep_last(2); substring(phone, 1)", True),
        "upper_country": ("country", "DIRECT", "TRANSFORMATION", "upper(country)", False),
    }
    (filtering,) = lineage["dataset"]
    assert (filtering["field"], filtering["transformations"][0]["subtype"]) == ("country", "FILTER")
    text = "".join(server.texts)
    assert "a@b.example" not in text
    assert SALT not in text


def test_facets_name_their_schema_and_ours_follow_it(server: OpenLineageServer, tmp_path: Path) -> None:
    write_log(tmp_path, "1", record(0, id=1))
    run(config_of(tmp_path, http(server)))
    schema = json.loads((DOCS / "lineage-facets.json").read_text())
    for event in server.events:
        assert event["schemaURL"].endswith("/OpenLineage.json#/$defs/RunEvent")
        parts = [event["run"], event["job"], *event["inputs"], *event["outputs"]]
        named = [(n, f) for part in parts for key in part if key.endswith("acets") for n, f in part[key].items()]
        assert named
        for name, facet in named:
            assert facet["_producer"].startswith("https://")
            assert "#/$defs/" in facet["_schemaURL"], name
            if name.startswith("tidelake_"):
                kind = facet["_schemaURL"].rpartition("/")[2]
                jsonschema.validate(facet, {**schema, "$ref": f"#/$defs/{kind}"})


@pytest.mark.needs("OpenLineage's schemas")
def test_events_follow_openlineages_own_schemas(server: OpenLineageServer, tmp_path: Path) -> None:
    folder = Path(os.environ[OPENLINEAGE_SPEC])
    schemas = [json.loads(path.read_text()) for path in folder.rglob("*.json") if "$id" in path.read_text()]
    known = Registry().with_resources((schema["$id"], Resource.from_contents(schema)) for schema in schemas)
    table = {"name": "db.orders", "masks": {"name": "redact"}, "filter": "name <> 'b'"}
    write_log(tmp_path, "1", record(0, id=1, name="a"), record(1, value="{"))
    with pytest.raises(RecordRefused):
        run(config_of(tmp_path, http(server), tables=[table]))

    def check(value: Any, schema_url: str) -> None:
        checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
        jsonschema.Draft202012Validator({"$ref": schema_url}, registry=known, format_checker=checker).validate(value)

    checked = Counter[str]()
    for event in server.events:
        check(event, event["schemaURL"])
        for part in (event["run"], event["job"], *event["inputs"], *event["outputs"]):
            for kind in (key for key in part if key.lower().endswith("facets")):
                for name, facet in part[kind].items():
                    if not name.startswith("tidelake_"):
                        check({name: facet}, facet["_schemaURL"].partition("#")[0])
                        check(facet, facet["_schemaURL"])
                        checked[name] += 1
    assert {"schema", "columnLineage", "errorMessage", "outputStatistics", "jobType", "symlinks"} <= checked.keys()


def test_a_record_that_stops_the_pipeline_fails_the_run_without_its_value(
    server: OpenLineageServer, tmp_path: Path
) -> None:
    write_log(tmp_path, "1", record(0, id=1), record(1, value='{"secret-value": '))
    with pytest.raises(RecordRefused):
        run(config_of(tmp_path, http(server)))
    assert server.kinds() == ["START", "RUNNING", "FAIL"]
    end = server.events[-1]
    message = end["run"]["facets"]["errorMessage"]
    assert message["message"].startswith("RecordRefused: a record stopped the pipeline")
    assert message["programmingLanguage"] == "PYTHON"
    assert "secret-value" not in "".join(server.texts)
    assert facets(end, "db.orders")["outputStatistics"]["rowCount"] == 1  # what was right before it is committed


def test_a_start_that_is_refused_is_a_run_that_failed(server: OpenLineageServer, tmp_path: Path) -> None:
    config = config_of(tmp_path, http(server))
    with pytest.raises(BadInput):
        run(config)  # the folder does not exist
    assert server.kinds() == ["START", "FAIL"]
    assert not (tmp_path / "lake" / "shop.lineage").exists()


def test_plan_reports_nothing(server: OpenLineageServer, tmp_path: Path) -> None:
    write_log(tmp_path, "1", record(0, id=1))
    asyncio.run(build_pipeline(config_of(tmp_path, http(server))).plan())
    assert server.events == []


async def test_a_run_that_is_stopped_is_complete_and_rows_are_reported_while_it_runs(
    server: OpenLineageServer, tmp_path: Path
) -> None:
    await asyncio.to_thread(write_log, tmp_path, "1", record(0, id=1))
    config = await asyncio.to_thread(config_of, tmp_path, http(server, interval_ms=20), "source.until=forever")
    pipeline = await asyncio.to_thread(build_pipeline, config)
    running = asyncio.create_task(pipeline.run())
    await until(lambda: any(e["eventType"] == "RUNNING" and e["outputs"] for e in server.events))
    pipeline.stop()
    await running
    assert server.kinds()[-1] == "COMPLETE"
    assert server.events[-1]["job"]["facets"]["jobType"]["processingType"] == "STREAMING"


# ---------------------------------------------------------------- servers that fail


def test_a_server_that_refuses_events_does_not_concern_the_pipeline(server: OpenLineageServer, tmp_path: Path) -> None:
    server.status = 500
    write_log(tmp_path, "1", record(0, id=1))
    pipeline = run(config_of(tmp_path, http(server)))
    assert pipeline.metrics.ended == "end of source"
    assert pipeline.metrics.rows == 1
    assert dict(pipeline.observed.lineage_events) == {"failed": 3}


def test_a_server_that_does_not_answer_delays_the_end_by_close_ms_and_drops_are_counted(
    server: OpenLineageServer, tmp_path: Path
) -> None:
    server.hangs.set()
    write_log(tmp_path, "1", record(0, id=1))
    began = time.monotonic()
    pipeline = run(config_of(tmp_path, http(server, queue_events=2, close_ms=300)))
    assert time.monotonic() - began < 5
    assert pipeline.metrics.rows == 1
    assert pipeline.observed.lineage_events["dropped"] >= 2
    assert pipeline.observed.lineage_events["sent"] == 0


@pytest.mark.interop
def test_a_killed_run_is_failed_by_the_next_one(server: OpenLineageServer, tmp_path: Path) -> None:
    write_log(tmp_path, "1", record(0, id=1))
    configuration = {
        "pipeline": "shop",
        "warehouse": f"{tmp_path}/lake",
        "source": {"type": "change-log-folder", "path": f"{tmp_path}/in", "poll_interval_ms": 10},
        "tables": [{"name": "db.orders"}],
        "checkpoint": {"interval_ms": 30},
        "lineage": http(server, interval_ms=20),
    }
    with Service(tmp_path, ["ingest", "run"], configuration) as service:
        service.start()
        service.wait_until(lambda: any(e["eventType"] == "RUNNING" and e["outputs"] for e in server.events))
        killed = server.events[0]["run"]["runId"]
        service.kill()
        service.run_to_the_end()
    assert server.kinds(killed)[-1] == "FAIL"
    (failure,) = (e for e in server.events if e["eventType"] == "FAIL")
    assert "was killed" in failure["run"]["facets"]["errorMessage"]["message"]
    assert server.kinds()[-1] == "COMPLETE"
    assert server.events[-1]["run"]["runId"] != killed
    assert not (tmp_path / "lake" / "shop.lineage").exists()


# ---------------------------------------------------------------- where events go


@pytest.mark.interop
def test_events_reach_a_topic_and_topics_are_named_by_their_broker(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    host, _, port = kafka_broker.address.rpartition(":")
    topic, events = kafka_broker.create_topic(), kafka_broker.create_topic()
    sent = {"topic": topic, "partition": 0, "timestamp_ms": 1, "headers": [], "key": None, "value": '{"id": 1}'}
    kafka_broker.send([sent])
    producer = {"bootstrap.servers": kafka_broker.address}
    run(
        config_of(
            tmp_path,
            {"transport": {"type": "kafka", "topic": events, "config": producer}},
            source={"type": "kafka", "bootstrap_servers": kafka_broker.address, "topics": [topic], "until": "end"},
            tables=[{"name": "db.orders", "match": "*", "options": {"bucket": -1}}],
            format="json",
        )
    )

    async def read() -> list[Any]:
        consumer = aiokafka.AIOKafkaConsumer(
            events, bootstrap_servers=kafka_broker.address, auto_offset_reset="earliest"
        )
        async with consumer:
            return [json.loads((await consumer.getone()).value) for _ in range(3)]

    found = asyncio.run(read())
    assert [event["eventType"] for event in found] == ["START", "RUNNING", "COMPLETE"]
    name = Kafka(host, port, topic)
    for event in found:
        assert [(one["namespace"], one["name"]) for one in event["inputs"]] == [(name.get_namespace(), topic)]
    origin = facets(found[-1], "db.orders")["columnLineage"]["fields"]["id"]["inputFields"][0]
    assert (origin["namespace"], origin["name"], origin["field"]) == (name.get_namespace(), topic, "id")


def test_a_transport_with_threads_of_its_own_has_sent_all_at_the_end(server: OpenLineageServer, tmp_path: Path) -> None:
    write_log(tmp_path, "1", record(0, id=1))
    run(config_of(tmp_path, {"transport": {"type": "async_http", "url": server.url}}))
    assert sorted(server.kinds()) == ["COMPLETE", "RUNNING", "START"]


def test_the_clients_own_variables_say_where_events_go(
    server: OpenLineageServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in {"URL": server.url, "API_KEY": "k-1234567", "NAMESPACE": "by-variable"}.items():
        monkeypatch.setenv(f"OPENLINEAGE_{name}", text)
    for name in ("URL", "TYPE", "AUTH"):  # the client sets these itself, and they must not stay
        monkeypatch.setenv(f"OPENLINEAGE__TRANSPORT__TRANSPORTS__DEFAULT_HTTP__{name}", "")
        monkeypatch.delenv(f"OPENLINEAGE__TRANSPORT__TRANSPORTS__DEFAULT_HTTP__{name}")
    write_log(tmp_path, "1", record(0, id=1))
    run(config_of(tmp_path, {}))
    assert server.kinds() == ["START", "RUNNING", "COMPLETE"]
    assert set(server.authorizations) == {"Bearer k-1234567"}
    assert {event["job"]["namespace"] for event in server.events} == {"by-variable"}
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
    write_log(tmp_path, "2", record(1, id=2))
    run(config_of(tmp_path, {}))
    assert len(server.events) == 3


@pytest.mark.parametrize(
    ("lineage", "message"),
    [
        pytest.param({}, r"`lineage` is set, but not where events go.*lineage\.transport", id="nowhere"),
        pytest.param({"transport": {"type": "http"}}, r"`lineage\.transport`", id="HTTP without a URL"),
        pytest.param({"transport": {"type": "smoke"}}, r"`lineage\.transport`", id="an unknown transport"),
        pytest.param(
            {"transport": {"type": "kafka", "topic": "t"}}, r"`lineage\.transport`", id="Kafka without brokers"
        ),
    ],
)
def test_a_transport_that_can_not_work_is_refused_at_the_start(lineage: Any, message: str, tmp_path: Path) -> None:
    write_log(tmp_path, "1")
    with pytest.raises(BadInput, match=message):
        build_pipeline(config_of(tmp_path, lineage))


def test_errors_are_reported_without_secrets(
    server: OpenLineageServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_log(tmp_path, "1", record(0, id=1))
    key = "an-api-key-of-the-server"
    lineage = http(server)
    lineage["transport"]["auth"] = {"type": "api_key", "apiKey": key}
    pipeline = build_pipeline(
        config_of(tmp_path, lineage, mask_salt=SALT, warehouse_options={"s3.secret-key": "s3cret"})
    )
    failure = BadInput(f"login with {key}, {SALT} and s3cret refused")

    async def fails(*_: object) -> None:
        raise failure

    monkeypatch.setattr(pipeline._flow, "run", fails)
    with pytest.raises(BadInput, match="login"):
        asyncio.run(pipeline.run())
    assert server.events[-1]["run"]["facets"]["errorMessage"]["message"] == (
        "BadInput: login with ***, *** and *** refused"
    )
    assert not [secret for secret in (key, SALT, "s3cret") for text in server.texts if secret in text]


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("source", "namespace"),
    [
        pytest.param("a:9092", "kafka://a:9092", id="host and port"),
        pytest.param("a", "kafka://a:9092", id="the usual port"),
        pytest.param("b:1, a:2", "kafka://b:1", id="the first of several"),
        pytest.param(["c:3", "d:4"], "kafka://c:3", id="a list"),
        pytest.param("[::1]:9092", "kafka://[::1]:9092", id="IPv6"),
    ],
)
def test_topics_are_in_the_namespace_of_the_first_broker(source: Any, namespace: str, tmp_path: Path) -> None:
    config = config_of(tmp_path, None, source={"type": "kafka", "bootstrap_servers": source, "topics": ["t"]})
    assert dataset_names.input_name(config.source, "t") == dataset_names.DatasetName(namespace, "t")


@pytest.mark.parametrize(
    ("warehouse", "options", "namespace", "name"),
    [
        pytest.param("s3://bucket/lake/", {}, "s3://bucket/lake", "paimon.db.t", id="an object store"),
        pytest.param("/data/lake", {}, "file:/data/lake", "paimon.db.t", id="a folder"),
        pytest.param("hdfs://me:pw@nn:8020/lake", {}, "hdfs://nn:8020/lake", "paimon.db.t", id="credentials stay here"),
        pytest.param("s3://b/l", {"metastore": "jdbc", "catalog-key": "prod"}, "s3://b/l", "prod.db.t", id="JDBC"),
    ],
)
def test_tables_are_named_as_paimon_names_them_in_flink(
    warehouse: str, options: dict[str, str], namespace: str, name: str, tmp_path: Path
) -> None:
    config = config_of(tmp_path, None, warehouse=warehouse, warehouse_options=options)
    assert dataset_names.table_name(config, "db.t") == dataset_names.DatasetName(namespace, name)


@pytest.mark.parametrize(
    ("location", "namespace", "name"),
    [
        pytest.param("s3://bucket/lake/db.db/t", "s3://bucket", "lake/db.db/t", id="an object store"),
        pytest.param("/lake/db.db/t", "file", "/lake/db.db/t", id="a folder"),
        pytest.param("hdfs://me@nn:8020/t", "hdfs://nn:8020", "t", id="HDFS"),
    ],
)
def test_the_folder_of_a_table_is_its_second_name(location: str, namespace: str, name: str) -> None:
    assert dataset_names.file_name(location) == dataset_names.DatasetName(namespace, name)
