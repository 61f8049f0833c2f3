"""Comparing a stack with its cluster, with kubectl's answers recorded from a real one."""

from __future__ import annotations

from typing import Any

import pytest

from cli.change.change import Change
from cli.change.plan import Plan, changes, key
from cli.errors import Failure, Refused
from cli.program.recording import KeptValues, Manifest
from tests.fakes.kubectl import FakeKubectl, listed


def stateful_set(replicas: int, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "default", "namespace": "slurm", **metadata},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [{"name": "slurmd", "image": "a"}]}}},
    }


def changed(live: dict[str, Any], wanted: dict[str, Any], after: Any = None, complaint: str = "") -> list[Change]:
    """What an apply of one object changes. `after`: what the API server would make of it, if not the object itself."""
    kubectl = FakeKubectl(answers=[({"--dry-run=server"}, after or wanted, complaint)])
    planned = Plan(
        namespace="slurm", objects=(Manifest(document=wanted),), kept=KeptValues({}), live={key(live): live}, inside={},
        left=(), effects=(),
    )  # fmt: skip
    return changes(kubectl, planned)


def secret(value: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "data": {"munge.key": value}}


@pytest.mark.parametrize(
    ("live", "wanted", "after", "properties"),
    [
        (
            stateful_set(2, generation=4, resourceVersion="100", managedFields=[{"manager": "slurmstack"}]),
            stateful_set(3),
            listed(stateful_set(3, generation=5, resourceVersion="100", managedFields=[])),
            [("spec.replicas", 2, 3)],
        ),
        (secret("b2xk"), secret("bmV3"), None, [("data.munge.key", "<secret>", "<secret>")]),
        (stateful_set(2), stateful_set(2), None, []),
    ],
    ids=["in spite of what the server writes itself", "no secret is shown", "equal"],
)
def test_an_update_is_what_the_api_server_would_change(
    live: dict[str, Any], wanted: dict[str, Any], after: Any, properties: list[tuple[str, Any, Any]]
) -> None:
    found = changed(live, wanted, after)
    assert [change.action for change in found] == ["update"] * bool(properties)
    told = [(item.path, item.old, item.new) for change in found for item in change.properties]
    assert told == properties


@pytest.mark.parametrize(
    ("complaint", "failure"),
    [
        ('The Job "x" is invalid: spec.template: Invalid value: field is immutable', Refused),
        ("admission webhook denied", Failure),
    ],
)
def test_what_the_api_server_will_not_change_is_told_in_its_words(complaint: str, failure: type[Failure]) -> None:
    with pytest.raises(Failure, match=complaint) as caught:
        changed(stateful_set(2), stateful_set(2), complaint=complaint)
    assert type(caught.value) is failure
