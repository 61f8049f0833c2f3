"""The engine's steps as changes of objects, in the shape that a real `pulumi preview --json` has."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cli.change.change import Change, PropertyChange
from cli.engine.plan import read_steps
from cli.errors import Failure

SET = "kubernetes:apps/v1:StatefulSet"
UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"


def step(op: str, type_: str, old: Any, new: Any, **more: Any) -> dict[str, Any]:
    """One step; states are left out where there is none."""
    custom = not type_.startswith(("slurmstack:", "pulumi:pulumi:"))
    states = {
        name: {"custom": custom, "type": type_, **({"inputs": inputs} if custom else {})}
        for name, inputs in (("oldState", old), ("newState", new))
        if inputs is not None
    }
    return {"op": op, "urn": f"urn:pulumi:prod::slurmstack::{type_}::slurm-x", "detailedDiff": None, **states, **more}


def changes(*steps: dict[str, Any]) -> list[Change]:
    return list(read_steps(json.dumps({"config": {"a": "b"}, "steps": steps}), failed=False)[0])


def test_an_updated_object_is_named_as_kubernetes_does_and_shows_what_differs() -> None:
    old, new = ({"metadata": {"name": "cpu"}, "spec": {"replicas": size}, "__defaults": [str(size)]} for size in (4, 5))
    (change,) = changes(step("update", SET, old, new, diffReasons=["spec"]))
    assert (change.action, change.kind, change.name) == ("update", "StatefulSet", "cpu")
    assert change.properties == (PropertyChange(path="spec.replicas", old=4, new=5),)


def test_all_that_is_to_be_is_told_once() -> None:
    steps = [
        step("refresh", SET, {"a": 1}, {"a": 2}),
        step("same", SET, {"a": 2}, {"a": 3}),
        step("delete", SET, {}, None),
    ]
    _, resources, _ = read_steps(json.dumps({"steps": steps}), failed=False)
    assert [item.inputs for item in resources] == [{"a": 3}]


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
    halves = [step("create-replacement", SET, old, new), step("replace", SET, old, new)]
    (change,) = changes(*halves, step("delete-replaced", SET, old, None))
    assert (change.action, change.name) == ("replace", "slurm-x")


KIND = {"kind": "update-replace"}


@pytest.mark.parametrize(
    "told",
    [
        {"replaceReasons": ["ports"]},
        {"detailedDiff": {"ports[0].port": KIND, "other": {"kind": "update"}}},
        {"detailedDiff": {"ports": KIND, "other": {"kind": "update"}}},
        {"detailedDiff": {"ports[1]": KIND, "other": {"kind": "update"}}},
    ],
    ids=["a name", "an element", "a list", "another place of it"],
)
def test_what_forces_a_replacement_is_told_apart_however_a_provider_names_it(told: dict[str, Any]) -> None:
    old, new = ({"ports": [{"name": "ssh", "port": port}], "other": port} for port in (1, 2))
    (change,) = changes(step("replace", SET, old, new, **told))
    assert [item.path for item in change.because] == ["ports[ssh].port"]


def test_an_old_one_that_is_marked_already_as_to_be_deleted_is_still_compared() -> None:
    """So it is wherever the new one is made first: Pulumi prints the step after it has marked the old one."""
    replaced = step("replace", SET, {"spec": {"a": 1}}, {"spec": {"a": 2}}, replaceReasons=["spec"])
    replaced["oldState"]["delete"] = True
    (change,) = changes(replaced)
    assert change.before is not None
    assert change.because == (PropertyChange(path="spec.a", old=1, new=2),)


def test_what_is_made_anew_only_because_something_else_is_names_that() -> None:
    cluster, group = "nebius:index/mk8sV1Cluster:Mk8sV1Cluster", "nebius:index/mk8sV1NodeGroup:Mk8sV1NodeGroup"
    first = step("replace", cluster, {"parentId": "p-1"}, {"parentId": "p-2"}, replaceReasons=["parentId"])
    follows = step("replace", group, {"parentId": "c-1"}, {"parentId": UNKNOWN}, replaceReasons=["parentId"])
    follows["newState"]["propertyDependencies"] = {"parentId": [first["urn"]], "template": None}
    moved = step("replace", group, {"parentId": "c-1"}, {"parentId": "c-9"}, replaceReasons=["parentId"])
    moved["newState"]["propertyDependencies"] = {"parentId": [first["urn"]]}
    moved["urn"] += "-moved"
    assert [change.cause for change in changes(first, follows, moved)] == ["", first["urn"], ""]
    assert [change.cause for change in changes(follows)] == [""]


def test_a_deleted_object_is_told_from_what_it_was_and_warnings_are_heard() -> None:
    (change,) = changes(step("delete", SET, {"metadata": {"name": "old"}}, None))
    assert (change.action, change.kind, change.name, change.properties) == ("delete", "StatefulSet", "old", ())
    diagnostics = [{"severity": "warning", "message": "warning: old\n"}, {"severity": "info", "message": "hello"}]
    assert read_steps(json.dumps({"diagnostics": diagnostics}), failed=False)[2] == ("old",)
    with pytest.raises(Failure, match="printed no JSON: nothing"):
        read_steps("", failed=True)


def test_a_secret_is_said_to_change_and_never_shown() -> None:
    masked = {"prefix": "[secret]", "length": 1}
    (change,) = changes(step("update", "random:index/x:X", masked, masked, diffReasons=["prefix"]))
    assert change.properties == (PropertyChange(path="prefix", old="<secret>", new="<secret>"),)
    old, new = ({"stringData": {"key": value}} for value in ("hush-1", "hush-2"))
    (change,) = changes(step("update", "kubernetes:core/v1:Secret", old, new))
    assert "hush" not in json.dumps(change.as_data())
    assert [item.path for item in change.properties] == ["stringData.key"]


def test_what_only_the_update_can_tell_is_unknown() -> None:
    (change,) = changes(step("update", SET, {"spec": {"a": "1"}}, {"spec": {"a": UNKNOWN}}))
    assert change.properties == (PropertyChange(path="spec.a", old="1", new="<unknown>"),)
