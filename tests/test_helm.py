"""The Helm chart makes the objects of the Kubernetes manifest.

Helm is not needed: `rendered` knows the few actions that the templates use, and refuses any other.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.test_deploy import MANIFESTS
from tidelake.ingest.config.config import parse_config

CHART: Final = Path(__file__).parents[1] / "deploy" / "helm" / "tidelake"
VALUES: Final[dict[str, Any]] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
TEMPLATES: Final = sorted((CHART / "templates").iterdir())
FILTERS: Final[dict[str, Any]] = {
    "toJson": lambda value: json.dumps(value, sort_keys=True),
    "toYaml": lambda value: yaml.safe_dump(value).rstrip("\n"),
    "sha256sum": lambda value: hashlib.sha256(value.encode()).hexdigest(),
    "indent 4": lambda value: re.sub(r"(?m)^", " " * 4, value),
}


def evaluated(pipe: str, values: dict[str, Any]) -> Any:
    path, *filters = [part.strip() for part in pipe.split("|")]
    assert path.startswith(".Values."), pipe
    value: Any = values
    for name in path.split(".")[2:]:
        value = value[name]
    for name in filters:
        value = FILTERS[name](value)
    return value


def rendered(template: str, values: dict[str, Any]) -> str:
    """What Helm makes of a template: values through filters, and `if` with `else`, which aren't nested."""
    lines: list[str] = []
    shown = True
    for line in template.splitlines():
        action = re.fullmatch(r"\s*\{\{- (if|else|end)\b ?(.*?) \}\}|\s*\{\{- (else|end) \}\}", line)
        if action is not None:
            match action[1] or action[3]:
                case "if":
                    shown = bool(evaluated(action[2], values))
                case "else":
                    shown = not shown
                case _:
                    shown = True
        elif shown:
            lines.append(re.sub(r"\{\{ (.*?) \}\}", lambda found: str(evaluated(found[1], values)), line))
    text = "\n".join(lines)
    assert "{{" not in text
    return text


def objects(**changed: Any) -> dict[str, dict[str, Any]]:
    """Each object of the chart by its kind. changed: values, in place of those of the chart."""
    values = {**copy.deepcopy(VALUES), **changed}
    texts = [rendered(path.read_text(encoding="utf-8"), values) for path in TEMPLATES]
    return {found["kind"]: found for text in texts for found in yaml.safe_load_all(text)}


def pod(**changed: Any) -> dict[str, Any]:
    found: dict[str, Any] = objects(**changed)["Deployment"]["spec"]["template"]["spec"]
    return found


def test_the_values_of_the_chart_make_the_manifest() -> None:
    """But for the checksum: who applies a manifest restarts the pods, and Helm does it by a change of the template."""
    made = objects()
    del made["Deployment"]["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
    expected = {found["kind"]: found for found in copy.deepcopy(MANIFESTS)}
    for found in (made["ConfigMap"], expected["ConfigMap"]):
        found["data"] = {name: yaml.safe_load(text) for name, text in found["data"].items()}
    assert made == expected


def test_another_pipeline_has_names_files_and_a_port_of_its_own() -> None:
    config = {**VALUES["config"], "pipeline": "bank", "metrics": {"host": "0.0.0.0", "port": 9999}}
    made = objects(config=config)
    assert {found["metadata"]["name"] for found in made.values()} == {"tidelake-bank"}
    (container,) = made["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["ports"] == [{"name": "http", "containerPort": 9999}]
    assert made["Service"]["spec"]["ports"][0]["port"] == 9999
    file = container["args"][2].rpartition("/")[2]
    read = parse_config(made["ConfigMap"]["data"][file], file, [], {})
    assert (read.pipeline, read.metrics.port) == ("bank", 9999)


def test_another_configuration_replaces_the_pod() -> None:
    def template(**changed: Any) -> Any:
        return objects(**changed)["Deployment"]["spec"]["template"]

    assert template() != template(config={**VALUES["config"], "warehouse": "s3://lake/other"})


@pytest.mark.parametrize(
    ("changed", "where", "expected"),
    [
        pytest.param({"nodeSelector": {"a": "b"}}, ["nodeSelector"], {"a": "b"}, id="nodes"),
        pytest.param({"tolerations": [{"key": "a"}]}, ["tolerations"], [{"key": "a"}], id="tolerations"),
        pytest.param({"affinity": {"podAffinity": {}}}, ["affinity"], {"podAffinity": {}}, id="affinity"),
        pytest.param({"serviceAccountName": "lake"}, ["serviceAccountName"], "lake", id="account"),
        pytest.param(
            {"secretName": "keys"},
            ["containers", 0, "envFrom"],
            [{"secretRef": {"name": "keys"}}],
            id="a named secret must exist",
        ),
        pytest.param(
            {"image": {"repository": "r/t", "tag": "1.2", "pullPolicy": "Always"}},
            ["containers", 0, "image"],
            "r/t:1.2",
            id="image",
        ),
        pytest.param(
            {"image": {"repository": "r/t", "tag": "1.2", "pullPolicy": "Always"}},
            ["containers", 0, "imagePullPolicy"],
            "Always",
            id="pull policy",
        ),
        pytest.param({"spillSizeLimit": "1Gi"}, ["volumes", 1, "emptyDir"], {"sizeLimit": "1Gi"}, id="spill"),
        pytest.param(
            {"resources": {"limits": {"memory": "4Gi"}}},
            ["containers", 0, "resources"],
            {"limits": {"memory": "4Gi"}},
            id="resources",
        ),
        pytest.param({"terminationGracePeriodSeconds": 9}, ["terminationGracePeriodSeconds"], 9, id="time to drain"),
    ],
)
def test_a_value_changes_the_pod(changed: dict[str, Any], where: list[Any], expected: Any) -> None:
    found: Any = pod(**changed)
    for step in where:
        found = found[step]
    assert found == expected


def used(text: str) -> Iterator[str]:
    yield from re.findall(r"\.Values\.(\w+)", text)


def test_every_value_acts() -> None:
    assert {name for path in TEMPLATES for name in used(path.read_text(encoding="utf-8"))} == VALUES.keys()


def test_the_chart_and_the_project_have_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    project = (CHART.parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert f'\nversion = "{chart["appVersion"]}"\n' in project
    assert chart["version"] == chart["appVersion"]
