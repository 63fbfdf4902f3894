"""The files of `docker/` say what the command line, the configuration and the image know."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from ingest.config.config import load_config
from ingest.settings import Config, KafkaSettings
from tidelake.cli.arguments import parse

DOCKER: Final = Path(__file__).parent.parent / "docker"
COMPOSE: Final[dict[str, Any]] = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))
SERVICE: Final[dict[str, Any]] = COMPOSE["services"]["tidelake"]
DOCKERFILE: Final = (DOCKER / "Dockerfile").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def config() -> Config:
    return load_config(DOCKER / "tidelake.yaml", environment={})


def mounts() -> dict[str, str]:
    """What lies behind each path inside the service."""
    return {path: source for source, path, *_ in (volume.split(":") for volume in SERVICE["volumes"])}


def test_what_compose_names_is_there() -> None:
    assert all("image" in service or "build" in service for service in COMPOSE["services"].values())
    assert SERVICE["depends_on"].keys() <= COMPOSE["services"].keys()
    assert (DOCKER / SERVICE["build"]["context"] / SERVICE["build"]["dockerfile"]).samefile(DOCKER / "Dockerfile")
    for source in mounts().values():
        assert (DOCKER / source).is_file() if source.startswith(".") else source in COMPOSE["volumes"]


def test_the_service_s_command_is_one_of_ours_and_reads_the_configuration_that_is_mounted() -> None:
    invocation = parse(shlex.split(SERVICE["command"]))
    assert invocation.command == "tidelake.cli.commands.ingest:run"
    assert mounts()[invocation.options["config"]] == "./tidelake.yaml"


def test_the_service_may_write_its_lake(config: Config) -> None:
    """A new volume belongs to whom the directory in the image belongs to, and to root where there is none."""
    assert config.warehouse in mounts()
    before_user, user, _ = re.split(r"^USER (\w+)$", DOCKERFILE, flags=re.MULTILINE)
    assert re.search(rf"install -d -o {user} -g {user} {config.warehouse}$", before_user, re.MULTILINE)


def test_the_service_waits_for_a_topic_that_is_not_there_yet(config: Config) -> None:
    """A source with a pattern waits (`tests/ingest/sources/kafka/test_source.py`); with names it would refuse every
    start.
    """
    assert isinstance(config.source, KafkaSettings)
    assert config.source.topic_names == []
    assert config.source.topic_pattern is not None
    named = [name for table in config.tables for name in table.match_patterns]
    assert [name for name in named if not re.fullmatch(config.source.topic_pattern, name)] == []


def test_the_broker_is_where_the_service_looks_for_it(config: Config) -> None:
    assert isinstance(config.source, KafkaSettings)
    advertised = COMPOSE["services"]["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert advertised == f"PLAINTEXT://{config.source.bootstrap_servers}"


def test_what_the_image_copies_is_there() -> None:
    copied = [word for line in re.findall(r"^COPY (?!--)(.*)$", DOCKERFILE, re.MULTILINE) for word in line.split()[:-1]]
    assert [name for name in copied if not (DOCKER.parent / name).exists()] == []
    assert {"tidelake", "ingest", "checkpoint", "compaction", "storage"} <= set(copied)
