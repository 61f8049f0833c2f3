"""What an update by the Pulumi engine changes: a stack compared with Pulumi's state, and the engine's own look."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cli.access.reach import reach, reach_if_made
from cli.change.change import Action, Change, compare, of_recording, of_states
from cli.change.effects import Effect, effects
from cli.change.jobs import JobsTouched, jobs_touched
from cli.change.owner import refuse_foreign, refuse_half_restored, refuse_other_stack
from cli.errors import Failure
from cli.program.recording import Made, record
from cli.program.values import Resource, Secret, contains, from_state
from cli.stack import Stack
from config.sections.cloud import NebiusCloud
from slurm.names import CONFIG_MAP

_ACTIONS: Mapping[str, Action] = {
    "create": "create",
    "import": "create",
    "update": "update",
    "replace": "replace",
    "create-replacement": "replace",
    "delete": "delete",
}
"""Steps of the engine that change something; the halves of a replacement are one change."""


@dataclass(frozen=True, kw_only=True)
class EnginePlan:
    """What it takes to come from one state of a stack to another."""

    changes: tuple[Change, ...]
    effects: tuple[Effect, ...]
    resources: tuple[Resource, ...] = ()
    """All resources that are to be."""


def against_state(stack: Stack, document: Mapping[str, Any]) -> EnginePlan:
    """The stack compared with a document that `pulumi stack export` printed. Nothing is asked of any cloud."""
    recording = record(stack.sections, stack=stack.name, made=_made(document))
    return compared(stack, of_export(document), of_recording(recording))


def against_state_and_cluster(stack: Stack, document: Mapping[str, Any]) -> EnginePlan:
    """The same. Raises Failure if the namespace in a cluster that is there is not the stack's, or is half restored."""
    if isinstance(stack.config.cloud, NebiusCloud):
        return against_state(stack, document)
    kubectl, namespace = reach(stack), stack.config.cluster.namespace
    there = next(iter(kubectl.items("namespace", namespace)), None)
    refuse_foreign(there)
    refuse_other_stack(kubectl, there, stack.name)
    refuse_half_restored(kubectl.items("statefulset,deployment", "-n", namespace))
    return against_state(stack, document)


def compared(stack: Stack, before: Sequence[Resource], after: Sequence[Resource]) -> EnginePlan:
    """Two sets of resources compared; `stack` is that of the later one."""
    changes = compare(before, after)
    found = effects(changes, stack.config)
    return EnginePlan(changes=tuple(changes), effects=found, resources=tuple(after))


def jobs_of(stack: Stack, planned: EnginePlan) -> JobsTouched:
    """What an update by the engine does to the jobs. A cluster that cannot be asked stops no preview."""
    namespace = stack.config.cluster.namespace
    try:
        kubectl = reach_if_made(stack)
        if kubectl is None:
            return JobsTouched()
        old = [
            *kubectl.items("statefulset,podtemplate", "-n", namespace),
            *kubectl.items("configmap", CONFIG_MAP, "-n", namespace),
        ]
    except Failure as failure:
        return JobsTouched(unread=str(failure))
    resources = (item for item in planned.resources if item.type.startswith("kubernetes:"))
    new = [item.inputs for item in resources if "metadata" in item.inputs]  # a Helm release is no object
    return jobs_touched(kubectl, namespace, old=old, new=new)


def of_export(document: Mapping[str, Any]) -> list[Resource]:
    """The resources of a document that `pulumi stack export` printed."""
    return of_states((document.get("deployment") or {}).get("resources") or [])


def _made(document: Mapping[str, Any]) -> dict[tuple[str, str], Made]:
    """The cloud's resources as they are, so that ids and addresses in the new program are the real ones."""
    made = {}
    for item in (document.get("deployment") or {}).get("resources") or []:
        if item["type"].startswith("nebius:") and not item.get("delete"):
            outputs = from_state(item.get("outputs") or {})
            known = {name: value for name, value in outputs.items() if not contains(value, Secret)}
            made[item["type"], item["urn"].rsplit("::", 1)[1]] = Made(id=item.get("id", ""), outputs=known)
    return made


def foreseen(printed: str, planned: EnginePlan, *, failed: bool) -> tuple[tuple[Change, ...], list[str]]:
    """What `pulumi preview --json` would change, with our properties where the state tells them; and its warnings.

    Raises Failure with the engine's words if it has failed.
    """
    try:
        document = json.loads(printed)
    except ValueError as error:
        raise Failure(f"pulumi preview printed no JSON: {printed.strip() or 'nothing'}") from error
    if failed:
        raise Failure("pulumi preview failed: " + ("\n".join(_messages(document, "error")) or "it says no reason"))
    known, found = {change.resource.urn: change for change in planned.changes}, dict[str, Change]()
    for step in document.get("steps", []):
        old, new = (
            of_states([{"urn": step["urn"], **(step.get(it) or {"type": ""})}]) for it in ("oldState", "newState")
        )
        # Not ready when it was refreshed, as a pool whose nodes wait for jobs: the engine only waits once more.
        says_nothing = not any(step.get(name) for name in ("detailedDiff", "diffReasons", "replaceReasons"))
        waits = step["op"] == "update" and says_nothing and old and new and old[0].inputs == new[0].inputs
        if step["op"] in _ACTIONS and (old or new) and not waits:
            action = _ACTIONS[step["op"]]
            by_hand = Change(action=action, resource=(new or old)[0])
            found.setdefault(step["urn"], replace(known.get(step["urn"], by_hand), action=action))
    return tuple(found.values()), _messages(document, "warning")


def _messages(document: Mapping[str, Any], severity: str) -> list[str]:
    diagnostics = [item for item in document.get("diagnostics", []) if item.get("severity") == severity]
    return [item["message"].strip().removeprefix(f"{severity}: ") for item in diagnostics]
