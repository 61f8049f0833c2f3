"""What the program registers for a stack with some changes, and how things are found in it."""

from __future__ import annotations

from typing import Any

from cli.program.recording import Recording
from cli.program.values import reveal
from tests import stacks
from tests.recordings import pod_template, record
from tests.stacks import with_change

KUBERNETES = "1.34"
"""By whose schema objects are judged."""

ELASTIC = {"min": 1, "max": 64}
"""A size."""

COMPONENT = "app.kubernetes.io/component"


def changed(sections: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A stack on a cluster that is there, or these sections, with changes: `worker_nodes__cpu__size=2`."""
    found = stacks.existing() if sections is None else sections
    for path, value in changes.items():
        found = with_change(found, path.replace("__", "."), value)
    return found


def recorded(sections: dict[str, Any] | None = None, **changes: Any) -> Recording:
    """What the program registers for it."""
    return record(changed(sections, **changes), stack="prod")


def inputs(recording: Recording, name: str) -> dict[str, Any]:
    """Of the one resource that is called so in Pulumi."""
    (found,) = [item for item in recording if item.name == name and item.custom]
    return dict(reveal(found.inputs))


def template(recording: Recording, name: str) -> dict[str, Any]:
    """Of the pods of a workload, by its name in Pulumi."""
    given = inputs(recording, name)
    found = given.get("template") or pod_template(given)
    assert found is not None
    return dict(found)


def pod(recording: Recording, name: str) -> dict[str, Any]:
    """Their specification."""
    return dict(template(recording, name)["spec"])


def templates(recording: Recording, *, of_machines: bool = False) -> dict[str, dict[str, Any]]:
    """Of all pods of the cluster's own, an elastic pool's too, by the name of what makes them.

    `of_machines`: with those that a cloud installs for its machines.
    """
    found = {}
    for item in recording:
        given = reveal(item.inputs) if item.type.startswith("kubernetes:") else {}
        made = given.get("template") or pod_template(given)
        if isinstance(made, dict) and (of_machines or "slurmstack:index:GpuStack" not in item.parent):
            found[item.name] = made
    return found


def containers(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Of a pod, by name: those that start before the others first."""
    return {one["name"]: one for one in (*spec.get("initContainers", ()), *spec["containers"])}


def environment(container: dict[str, Any]) -> dict[str, Any]:
    """Its variables: their values, or where they come from."""
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container.get("env", ())}


def mounts(container: dict[str, Any], volume: str | None = None) -> dict[str, dict[str, Any]]:
    """What it mounts, or mounts of one volume, by path."""
    found = container.get("volumeMounts", ())
    return {one["mountPath"]: one for one in found if volume in {None, one["name"]}}


def volumes(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Of a pod, by name."""
    return {one["name"]: one for one in spec.get("volumes", ())}


def objects(recording: Recording, kind: str) -> dict[str, dict[str, Any]]:
    """Objects of a kind, by their names in Kubernetes."""
    found = [dict(reveal(item.inputs)) for item in recording if item.type.rpartition(":")[2] == kind]
    return {item["metadata"]["name"]: item for item in found}


def named(recording: Recording, part: str) -> list[str]:
    """Names of resources that have this part in them."""
    return [item.name for item in recording if part in item.name]


def differing(before: Recording, after: Recording) -> set[str]:
    """Names of resources whose inputs differ, or that only one of them has."""
    one, two = ({item.name: repr(reveal(item.inputs)) for item in recording} for recording in (before, after))
    return {name for name in one.keys() | two.keys() if one.get(name) != two.get(name)}


def everything() -> dict[str, Any]:
    """A stack with every component that runs pods."""
    monitoring = {"install": True, "kube_state": True, "kube_state_image": "h.example/kube-state:1"}
    return changed(
        stacks.existing_full(),
        monitoring=monitoring,
        dashboard={"enabled": True},
        worker_nodes__gpu__size={"max": 2},
        health={"tests": {"enabled": True}},
        sssd={"secret": "ldap"},
    )
