"""The unit and the manifests of `deploy/` agree with the command line, the configuration and the endpoint."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import yaml

from tests.test_docker import DOCKERFILE
from tidelake.cli.commands import ingest_run
from tidelake.cli.exits import ExitCode
from tidelake.cli.parser import parse
from tidelake.ingest.config.config import parse_config

DEPLOY: Final = Path(__file__).parent.parent / "deploy"
UNIT: Final = DEPLOY / "systemd" / "tidelake@.service"
MANIFESTS: Final[list[dict[str, Any]]] = list(
    yaml.safe_load_all((DEPLOY / "kubernetes" / "tidelake.yaml").read_text(encoding="utf-8"))
)
CONFIG_MAP, DEPLOYMENT, SERVICE = MANIFESTS
POD: Final[dict[str, Any]] = DEPLOYMENT["spec"]["template"]["spec"]
CONTAINER: Final[dict[str, Any]] = POD["containers"][0]


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment]
    parser.read_string(UNIT.read_text(encoding="utf-8"))
    return parser


def test_the_unit_runs_our_command_and_does_not_restart_after_a_refusal() -> None:
    service = unit()["Service"]
    program, *arguments = shlex.split(service["ExecStart"].replace("%i", "shop"))
    assert program.endswith("/tidelake")
    invocation = parse(arguments)
    assert (invocation.command, invocation.options["config"]) == (
        ingest_run.run,
        "/etc/tidelake/shop.yaml",
    )
    codes = {ExitCode.USAGE, ExitCode.REFUSED, ExitCode.FENCED}
    assert set(map(int, service["RestartPreventExitStatus"].split())) == set(map(int, codes))


def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    """Without systemd here its words are only compared with those that it documents."""
    known = {
        "Unit": {"Description", "After", "Wants", "StartLimitIntervalSec", "StartLimitBurst"},
        "Install": {"WantedBy"},
    }
    for section, names in known.items():
        assert set(unit()[section]) <= names
    if (analyze := shutil.which("systemd-analyze")) is not None:
        copy = tmp_path / "tidelake@shop.service"
        copy.write_text(UNIT.read_text(encoding="utf-8").replace("/opt/tidelake/bin/tidelake", "/bin/true"))
        result = subprocess.run([analyze, "verify", copy], capture_output=True, text=True, check=False)
        assert [line for line in result.stderr.splitlines() if str(copy.name) in line and "Unknown" in line] == []


def test_the_pod_runs_the_configuration_of_the_same_manifest() -> None:
    invocation = parse(CONTAINER["args"])
    path = Path(invocation.options["config"])
    mounts = {mount["mountPath"]: mount["name"] for mount in CONTAINER["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in POD["volumes"]}
    assert volumes[mounts[str(path.parent)]]["configMap"]["name"] == CONFIG_MAP["metadata"]["name"]
    config = parse_config(CONFIG_MAP["data"][path.name], path.name, [], {})
    assert str(config.write.spill_directory) in mounts
    assert (config.metrics.host, config.metrics.port) == ("0.0.0.0", CONTAINER["ports"][0]["containerPort"])
    assert SERVICE["spec"]["ports"][0]["port"] == config.metrics.port
    (user,) = re.findall(r"--uid (\d+)", DOCKERFILE)
    assert POD["securityContext"]["runAsUser"] == int(user)


def test_probes_use_existing_paths_and_one_process_runs_at_a_time() -> None:
    probes = {name: CONTAINER[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {name: probe["path"] for name, probe in probes.items()} == {
        "startupProbe": "/live",
        "livenessProbe": "/live",
        "readinessProbe": "/ready",
    }
    ports = {port["name"] for port in CONTAINER["ports"]}
    assert {probe["port"] for probe in probes.values()} <= ports
    assert (DEPLOYMENT["spec"]["replicas"], DEPLOYMENT["spec"]["strategy"]) == (1, {"type": "Recreate"})
    labels = DEPLOYMENT["spec"]["template"]["metadata"]["labels"]
    assert DEPLOYMENT["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert SERVICE["spec"]["selector"].items() <= labels.items()
