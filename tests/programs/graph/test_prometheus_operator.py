"""Objects for an existing Prometheus are as its operator's own schema has them."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from cli.program.values import reveal
from tests import stacks
from tests.recordings import record
from tests.stacks import with_change

OPERATOR = "github.com/prometheus-operator/prometheus-operator"
SUMS = {
    "v0.75.2": "h1:0oUMm/TbLojGi1b+EKO1JYKkUqqUhozIiDYYg7DIqVI=",
    "v0.79.2": "h1:H/HCiMS4dXQyiFHw28PFlWMh15YUraL3MFe8u7k7dGA=",
    "v0.85.0": "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
}
"""Of the operator's releases, as Go counts their content: the oldest that docs/monitoring.md names, and a new one."""

KINDS = ("PodMonitor", "PrometheusRule", "ServiceMonitor")


def objects(version: str = "24.11") -> list[dict[str, Any]]:
    existing = {"namespace": "monitoring", "labels": {"release": "kube-prometheus-stack"}}
    sections = with_change(stacks.existing_full(), "slurm.version", version)
    made = record(with_change(sections, "monitoring", {"existing": existing}), stack="prod")
    return [dict(reveal(item.inputs)) for item in made if ":monitoring.coreos.com/" in item.type]


@cache
def schemas(release: str) -> dict[str, Any]:
    """Of the operator's kinds, from its own module, which lies in Go's cache and not in the repository."""
    command = ["go", "mod", "download", "-json", f"{OPERATOR}@{release}"]
    done = subprocess.run(command, cwd="/", check=True, capture_output=True, text=True)
    module = json.loads(done.stdout)
    assert module["Sum"] == SUMS[release]
    found = {}
    for kind in KINDS:
        file = Path(module["Dir"], f"example/prometheus-operator-crd/monitoring.coreos.com_{kind.lower()}s.yaml")
        (version,) = yaml.safe_load(file.read_text(encoding="utf-8"))["spec"]["versions"]
        assert version["name"] == "v1"
        found[kind] = closed(version["schema"]["openAPIV3Schema"])
    return found


def closed(schema: Any) -> Any:
    """The same, with what it does not know refused: the API server would drop it without a word."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    own = {key: closed(value) for key, value in schema.items()}
    # Metadata has no properties there: they are Kubernetes' own.
    return {**own, "additionalProperties": False} if isinstance(schema.get("properties"), dict) else own


def validate(document: dict[str, Any], release: str) -> None:
    # The schema itself is not checked: one of its patterns is Go's and not Python's.
    jsonschema.Draft202012Validator(schemas(release)[document["kind"]]).validate(document)


@pytest.mark.parametrize(
    ("version", "release"), [("24.11", "v0.75.2"), ("26.05", "v0.79.2"), ("24.11", "v0.85.0"), ("26.05", "v0.85.0")]
)
def test_each_object_is_as_the_operator_s_schema_has_it(version: str, release: str) -> None:
    found = objects(version)
    assert sorted({document["kind"] for document in found}) == list(KINDS)
    for document in found:
        validate(document, release)
