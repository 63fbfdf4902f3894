"""The files of `docker/` agree with the command line, the configuration and the image."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
import yaml

from tidelake.cli.commands import ingest_run, serve
from tidelake.cli.parser import parse
from tidelake.ingest.config.config import load_config
from tidelake.ingest.monitoring.metric_list import METRICS
from tidelake.ingest.settings import Config
from tidelake.ingest.source_settings import KafkaSettings

DOCKER: Final = Path(__file__).parent.parent / "docker"
COMPOSE: Final[dict[str, Any]] = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))
SERVICE: Final[dict[str, Any]] = COMPOSE["services"]["tidelake"]
DOCKERFILE: Final = (DOCKER / "Dockerfile").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def config() -> Config:
    return load_config(DOCKER / "tidelake.yaml", environment={})


def mounts() -> dict[str, str]:
    """The source of each path inside the service."""
    return {path: source for source, path, *_ in (volume.split(":") for volume in SERVICE["volumes"])}


def test_files_named_in_compose_exist() -> None:
    assert all("image" in service or "build" in service for service in COMPOSE["services"].values())
    assert SERVICE["depends_on"].keys() <= COMPOSE["services"].keys()
    assert (DOCKER / SERVICE["build"]["context"] / SERVICE["build"]["dockerfile"]).samefile(DOCKER / "Dockerfile")
    for source in mounts().values():
        assert (DOCKER / source).is_file() if source.startswith(".") else source in COMPOSE["volumes"]


def test_the_service_runs_our_command_with_the_mounted_configuration() -> None:
    invocation = parse(shlex.split(SERVICE["command"]))
    assert invocation.command == ingest_run.run
    assert mounts()[invocation.options["config"]] == "./tidelake.yaml"


def test_the_service_may_write_its_volumes(config: Config) -> None:
    """A new volume gets the owner of the directory in the image, or root if the directory does not exist."""
    assert str(config.write.spill_directory) in mounts()
    before_user, user, _ = re.split(r"^USER (\w+)$", DOCKERFILE, flags=re.MULTILINE)
    for path in (config.write.spill_directory, "/lake"):
        assert re.search(rf"install -d -o {user} -g {user} {path}( \\)?$", before_user, re.MULTILINE)


def test_the_lake_uses_the_bucket_created_in_the_running_store(config: Config) -> None:
    services = COMPOSE["services"]
    assert services["bucket"]["command"].endswith(f" store/{urlsplit(config.warehouse).netloc}")
    options, minio = config.warehouse_options, services["minio"]["environment"]
    assert (options["s3.access-key"], options["s3.secret-key"]) == tuple(minio.values())
    assert options["s3.endpoint"] == "http://minio:9000"
    assert services["bucket"]["environment"]["MC_HOST_store"] == "http://minioadmin:minioadmin@minio:9000"
    assert SERVICE["depends_on"]["bucket"] == {"condition": "service_completed_successfully"}


def test_the_rest_server_serves_the_warehouse_of_the_pipeline(config: Config) -> None:
    service = COMPOSE["services"]["rest"]
    assert service["build"] == SERVICE["build"]
    invocation = parse(shlex.split(service["command"]))
    assert invocation.command == serve.rest
    options = invocation.options
    assert (options["catalog"].warehouse, dict(options["catalog"].options)) == (
        config.warehouse,
        dict(config.warehouse_options),
    )
    assert service["ports"] == [f"127.0.0.1:{options['port']}:{options['port']}"]
    assert f"127.0.0.1:{options['port']}/live" in service["healthcheck"]["test"][-1]


def test_the_connector_sends_the_tables_to_the_configured_topics(config: Config) -> None:
    connector = json.loads((DOCKER / "connector.json").read_text(encoding="utf-8"))
    postgres = COMPOSE["services"]["postgres"]
    made = re.findall(r"^CREATE TABLE (\w+)", (DOCKER / "shop.sql").read_text(encoding="utf-8"), re.MULTILINE)
    topics = {f"{connector['topic.prefix']}.{connector['schema.include.list']}.{table}" for table in made}
    assert topics == {name for table in config.tables for name in table.match_patterns}
    login = [connector[f"database.{name}"] for name in ("user", "password", "dbname")]
    assert login == list(postgres["environment"].values())
    assert "wal_level=logical" in postgres["command"]
    assert f"/connectors/{config.pipeline}/config" in COMPOSE["services"]["connector"]["command"]


def test_prometheus_scrapes_the_port_of_the_service(config: Config) -> None:
    scraped = yaml.safe_load((DOCKER / "prometheus.yaml").read_text(encoding="utf-8"))
    (job,) = scraped["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"tidelake:{config.metrics.port}"]}]
    assert config.metrics.host == "0.0.0.0"
    assert f"127.0.0.1:{config.metrics.port}/live" in DOCKERFILE
    assert SERVICE["ports"] == [f"127.0.0.1:{config.metrics.port}:{config.metrics.port}"]


def test_mounts_of_every_service_exist_and_its_dependencies_have_health_checks() -> None:
    services = COMPOSE["services"]
    for service in services.values():
        for source, *_ in (volume.split(":") for volume in service.get("volumes", [])):
            assert (DOCKER / source).exists() if source.startswith(".") else source in COMPOSE["volumes"]
        waits = service.get("depends_on", {})
        for other, how in waits.items() if isinstance(waits, dict) else ():
            assert how["condition"] != "service_healthy" or "healthcheck" in services[other]


def test_each_panel_shows_the_chosen_pipelines_and_has_one_unit() -> None:
    dashboard = json.loads((DOCKER / "grafana/dashboards/tidelake.json").read_text(encoding="utf-8"))
    variables = {one["name"]: one["query"]["query"] for one in dashboard["templating"]["list"]}
    assert variables == {
        "pipeline": "label_values(tidelake_pipeline_info, pipeline)",
        "instance": 'label_values(tidelake_pipeline_info{pipeline=~"$pipeline"}, instance)',
    }
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            metrics = re.findall(r"\b(?:tidelake|process)_\w+(\{[^}]*\})?", target["expr"])
            assert all('instance=~"$instance"' in labels for labels in metrics), target["expr"]
        assert panel["fieldConfig"]["overrides"] == []  # a second axis would be one
        kinds = {"duration" if "duration_seconds_bucket" in t["expr"] else "other" for t in panel["targets"]}
        assert len(kinds) == 1 or panel["fieldConfig"]["defaults"]["unit"] == "s", panel["title"]


def test_links_of_the_dashboard_lead_to_sections_of_the_runbook() -> None:
    text = (DOCKER / "grafana/dashboards/tidelake.json").read_text(encoding="utf-8")
    runbook = (DOCKER.parent / "docs" / "runbook.md").read_text(encoding="utf-8")
    sections = {title.lower().replace(" ", "-").replace("'", "") for title in re.findall(r"(?m)^## (.*)$", runbook)}
    linked = set(re.findall(r"docs/runbook\.md#([\w-]+)", text))
    assert linked == {"lag-grows", "new-dead-letters", "a-table-is-in-quarantine"}
    assert linked <= sections


def test_the_dashboard_uses_existing_metrics() -> None:
    dashboard = json.loads((DOCKER / "grafana/dashboards/tidelake.json").read_text(encoding="utf-8"))
    panels = dashboard["panels"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    asked = {name for query in queries for name in re.findall(r"tidelake_\w+", query)}
    there = {metric.exposed_name for metric in METRICS}
    assert {re.sub(r"_bucket$", "", name) for name in asked} <= there
    for subject in ("source_lag_records", "table_freshness_seconds", "table_files", "table_sorted_runs_max"):
        assert f"tidelake_{subject}" in asked
    places = [panel["gridPos"] for panel in panels]
    cells = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
    assert len(cells) == len(set(cells))  # no panel hides another
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)
    provisioned = yaml.safe_load((DOCKER / "grafana/provisioning/datasources/prometheus.yaml").read_text())
    uids = {target["datasource"]["uid"] for panel in panels for target in panel["targets"]}
    assert uids == {provisioned["datasources"][0]["uid"]}
    (provider,) = yaml.safe_load((DOCKER / "grafana/provisioning/dashboards/tidelake.yaml").read_text())["providers"]
    mounted = [volume for volume in COMPOSE["services"]["grafana"]["volumes"] if "dashboards:" in volume]
    assert mounted[0].split(":")[1] == provider["options"]["path"]


def test_the_service_waits_for_a_missing_topic(config: Config) -> None:
    """A source with a pattern waits (`tests/ingest/sources/kafka/test_kafka_source.py`); with names it would refuse
    every start.
    """
    assert isinstance(config.source, KafkaSettings)
    assert config.source.topic_names == []
    assert config.source.topic_pattern is not None
    named = [name for table in config.tables for name in table.match_patterns]
    assert [name for name in named if not re.fullmatch(config.source.topic_pattern, name)] == []


def test_the_broker_address_matches_the_configuration(config: Config) -> None:
    assert isinstance(config.source, KafkaSettings)
    advertised = COMPOSE["services"]["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert advertised == f"PLAINTEXT://{config.source.bootstrap_servers}"


def test_files_copied_into_the_image_exist() -> None:
    copied = [word for line in re.findall(r"^COPY (?!--)(.*)$", DOCKERFILE, re.MULTILINE) for word in line.split()[:-1]]
    assert [name for name in copied if not (DOCKER.parent / name).exists()] == []
    assert {"tidelake", "ingest", "checkpoint", "compaction", "storage"} <= set(copied)
