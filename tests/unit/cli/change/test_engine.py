"""What the engine's own preview tells besides, in the shape that a real `pulumi preview --json` has."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from cli.change.change import Change, PropertyChange
from cli.change.engine_plan import EnginePlan, foreseen
from cli.errors import Failure

SET = "kubernetes:apps/v1:StatefulSet"


def step(op: str, type_: str, old: Any, new: Any, **more: Any) -> dict[str, Any]:
    """One step; states are left out where there is none."""
    custom = not type_.startswith(("slurmstack:", "pulumi:pulumi:"))
    states = {
        name: {"custom": custom, "type": type_, **({"inputs": inputs} if custom else {})}
        for name, inputs in (("oldState", old), ("newState", new))
        if inputs is not None
    }
    return {"op": op, "urn": f"urn:pulumi:prod::slurmstack::{type_}::slurm-x", "detailedDiff": None, **states, **more}


NOTHING = EnginePlan(changes=(), effects=())


def changes(*steps: dict[str, Any], planned: EnginePlan = NOTHING) -> tuple[Change, ...]:
    return foreseen(json.dumps({"config": {"a": "b"}, "steps": steps}), planned, failed=False)[0]


def test_the_engine_says_what_changes_and_the_state_says_how() -> None:
    old, new = ({"metadata": {"name": "cpu"}, "spec": {"replicas": size}} for size in (4, 5))
    (change,) = changes(step("update", SET, old, new, diffReasons=["spec"]))
    assert (change.action, change.kind, change.name) == ("update", "StatefulSet", "cpu")
    ours = replace(change, properties=(PropertyChange(path="spec.replicas", old=4, new=5),))
    planned = EnginePlan(changes=(ours, *changes(step("create", "kubernetes:core/v1:Service", None, {}))), effects=())
    assert changes(step("update", SET, old, new), planned=planned) == (ours,)
    anew = changes(step("replace", SET, old, new, replaceReasons=["spec"]), planned=planned)
    assert anew == (replace(ours, action="replace"),), "a provider knows better what can never change"
    masked = {"data": "[secret]"}
    assert changes(step("update", "kubernetes:core/v1:Secret", masked, masked, diffReasons=["data"]))


def test_components_what_stays_the_same_and_what_the_engine_only_waits_for_are_no_changes() -> None:
    """The last one was seen with the real engine while a pool was rolled, and one of its nodes waited for a job."""
    same = {"metadata": {"name": "cpu"}, "spec": {"replicas": 4}}
    assert not changes(
        step("same", "pulumi:pulumi:Stack", {}, {}),
        step("create", "slurmstack:index:WorkerPool", None, {}),
        step("refresh", SET, {"spec": 1}, {"spec": 2}),
        step("same", SET, {}, {}),
        step("update", "pulumi:providers:kubernetes", {"upsertExistingObjects": "true"}, {}),
        step("read", SET, None, {}),
        step("update", SET, same, same),
    )


def test_the_halves_of_a_replacement_are_one_change() -> None:
    old, new = {"spec": {"serviceName": "a"}}, {"spec": {"serviceName": "b"}}
    replaced = step("replace", SET, old, new)
    replaced["oldState"]["delete"] = True  # Pulumi prints the step after it has marked the old one
    (change,) = changes(step("create-replacement", SET, old, new), replaced, step("delete-replaced", SET, old, None))
    assert (change.action, change.name) == ("replace", "slurm-x")


def test_a_deleted_object_is_named_warnings_are_heard_and_no_document_is_a_failure() -> None:
    (change,) = changes(step("delete", SET, {"metadata": {"name": "old"}}, None))
    assert (change.action, change.kind, change.name) == ("delete", "StatefulSet", "old")
    diagnostics = [{"severity": "warning", "message": "warning: old\n"}, {"severity": "info", "message": "hello"}]
    assert foreseen(json.dumps({"diagnostics": diagnostics}), NOTHING, failed=False)[1] == ["old"]
    with pytest.raises(Failure, match="printed no JSON: nothing"):
        foreseen("", NOTHING, failed=True)
