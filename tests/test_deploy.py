"""The unit and the manifests of `deploy/` agree with the command line, the configuration and the endpoint."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.test_docker import DOCKERFILE
from tidelake.cli.commands import ingest_run, serve
from tidelake.cli.exits import ExitCode
from tidelake.cli.parser import parse
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.monitoring.metric_list import METRICS

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


def test_a_pod_that_is_always_restarted_stays_after_a_refusal() -> None:
    assert POD.get("restartPolicy", "Always") == "Always"
    options = parse(CONTAINER["args"]).options
    assert options["stay_when_refused"]
    assert parse(CONTAINER["args"]).log_format == "json"


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


def test_pods_of_the_rest_server_run_our_command() -> None:
    deployment, service = yaml.safe_load_all((DEPLOY / "kubernetes" / "rest.yaml").read_text(encoding="utf-8"))
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    invocation = parse(container["args"])
    assert invocation.command == serve.rest
    options = invocation.options
    assert container["ports"] == [{"name": service["spec"]["ports"][0]["targetPort"], "containerPort": options["port"]}]
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {str(Path(file).parent) for file in (options["token_file"], *options["tls"])} <= mounts
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"] == {"path": "/live", "port": "rest", "scheme": "HTTPS"}
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == service["spec"]["selector"] == labels
    assert pod["securityContext"]["runAsUser"] == POD["securityContext"]["runAsUser"]


RULES_FILE: Final = DEPLOY / "prometheus" / "tidelake.rules.yml"
RULES: Final[list[dict[str, Any]]] = yaml.safe_load(RULES_FILE.read_text())["groups"][0]["rules"]


def test_alerts_use_metrics_that_exist() -> None:
    exposed = {metric.exposed_name for metric in METRICS}
    for rule in RULES:
        names = set(re.findall(r"tidelake_\w+", rule["expr"]))
        assert names
        assert {re.sub(r"_(sum|count)$", "", name) for name in names} <= exposed, rule["alert"]
        assert rule["annotations"].keys() == {"summary", "remedy", "runbook_url"}


def test_each_alert_links_to_its_section_of_the_runbook() -> None:
    runbook = (DEPLOY.parent / "docs" / "runbook.md").read_text(encoding="utf-8")
    sections = {
        re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in re.findall(r"(?m)^## (.*)$", runbook)
    }
    for rule in RULES:
        address, _, section = rule["annotations"]["runbook_url"].partition("#")
        assert address.endswith("/docs/runbook.md")
        assert section in sections, rule["alert"]


@dataclass(frozen=True)
class AlertCase:
    """series: name to values in the notation of promtool, 15 s apart. fires: at 6 minutes."""

    name: str
    alert: str
    series: dict[str, str]
    fires: bool


LETTERS: Final = 'tidelake_dead_letters_total{instance="a:9404",code="BAD_RECORD"}'
OF_TABLE: Final = '{instance="a:9404",table="shop.orders"}'
AGE: Final = f"tidelake_table_oldest_record_age_seconds{OF_TABLE}"
TARGET: Final = f"tidelake_table_freshness_target_seconds{OF_TABLE}"
COMMITS: Final = f"tidelake_table_commits_total{OF_TABLE}"
ALERT_CASES: Final = [
    AlertCase("the first dead letters", "TidelakeDeadLetters", {LETTERS: "0x20 20x40"}, True),
    AlertCase("dead letters before the first scrape", "TidelakeDeadLetters", {LETTERS: "_x20 20x40"}, True),
    AlertCase("dead letters after a restart", "TidelakeDeadLetters", {LETTERS: "30x20 0 5x40"}, True),
    AlertCase("no dead letters", "TidelakeDeadLetters", {LETTERS: "0x120"}, False),
    AlertCase("old dead letters", "TidelakeDeadLetters", {LETTERS: "20x120"}, False),
    AlertCase("rows are late", "TidelakeFreshnessMissed", {AGE: "7x120", TARGET: "5x120", COMMITS: "0+1x120"}, True),
    AlertCase("rows are fresh", "TidelakeFreshnessMissed", {AGE: "4x120", TARGET: "5x120", COMMITS: "0+1x120"}, False),
    AlertCase("no new rows", "TidelakeFreshnessMissed", {AGE: "7x120", TARGET: "5x120", COMMITS: "9x120"}, False),
    AlertCase("no target", "TidelakeFreshnessMissed", {AGE: "7x120", COMMITS: "0+1x120"}, False),
]


@pytest.mark.needs("Prometheus")
@pytest.mark.parametrize("case", ALERT_CASES, ids=lambda case: case.name)
def test_alerts_fire(case: AlertCase, tmp_path: Path) -> None:
    """Prometheus's own test of rules."""
    at = "6m" if case.fires else "20m"
    labels = {"instance": "a:9404"}
    labels |= {"code": "BAD_RECORD"} if LETTERS in case.series else {"table": "shop.orders"}
    (rule,) = [rule for rule in RULES if rule["alert"] == case.alert]
    annotations = {
        name: re.sub(r"{{ \$labels\.(\w+) }}", lambda found: labels[found[1]], text)
        for name, text in rule["annotations"].items()
    }
    expected = [{"exp_labels": labels, "exp_annotations": annotations}] if case.fires else []
    test = {
        "rule_files": [str(RULES_FILE)],
        "evaluation_interval": "15s",
        "tests": [
            {
                "interval": "15s",
                "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
                "alert_rule_test": [{"eval_time": at, "alertname": case.alert, "exp_alerts": expected}],
            }
        ],
    }
    (tmp_path / "test.yml").write_text(json.dumps(test))
    result = subprocess.run(
        ["promtool", "test", "rules", tmp_path / "test.yml"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
