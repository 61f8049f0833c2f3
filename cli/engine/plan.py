"""What an update by the Pulumi engine changes: by Pulumi's state and the cluster, or in the engine's words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pulumi.runtime import rpc

from cli.access.reach import reach, reach_if_made
from cli.change.change import Action, Change, PropertyChange, compare, differences, of_recording, of_states
from cli.change.effects import Effect, effects
from cli.change.jobs import JobsTouched, jobs_touched
from cli.change.owner import refuse_foreign, refuse_other_stack
from cli.change.plan import effects_there, rolled
from cli.errors import Failure
from cli.program.recording import Made, Recording, record
from cli.program.values import UNKNOWN, Resource, Secret, contains, from_state, mapped, printable
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

_HIDDEN: Mapping[Any, Any] = {"[secret]": Secret(None), rpc.UNKNOWN: UNKNOWN}
"""How the engine writes what it does not show or know."""


@dataclass(frozen=True, kw_only=True)
class EnginePlan:
    """What it takes to come from one state of a stack to another."""

    changes: tuple[Change, ...]
    effects: tuple[Effect, ...]
    resources: tuple[Resource, ...] = ()
    """All resources that are to be."""
    warnings: tuple[str, ...] = ()
    """Of the engine, of providers and of policy packs."""
    recording: Recording = field(default_factory=Recording)
    """The run of the program that registered the resources, where it was ours."""


def against_state(stack: Stack, document: Mapping[str, Any]) -> EnginePlan:
    """The stack compared with a document that `pulumi stack export` printed. Nothing is asked of any cloud."""
    recording = record(stack.sections, stack=stack.name, made=_made(document))
    return replace(compared(stack, of_export(document), of_recording(recording)), recording=recording)


def against_state_and_cluster(stack: Stack, document: Mapping[str, Any], *, adopt: bool = False) -> EnginePlan:
    """The same, with what it costs in the cluster as that is, where there is one already.

    Raises Failure if that is not the stack's. `adopt`: a stack of another name may have made it.
    """
    refuse_foreign_namespace(stack, adopt=adopt)
    planned = against_state(stack, document)
    if isinstance(stack.config.cloud, NebiusCloud):
        return planned
    told = {(effect.kind, effect.name) for effect in planned.effects}
    there = effects_there(reach(stack), stack.config, planned.recording)
    more = (effect for effect in there if (effect.kind, effect.name) not in told)
    return replace(planned, effects=(*planned.effects, *more))


def removal(stack: Stack, document: Mapping[str, Any]) -> EnginePlan:
    """What it means to destroy everything in a document that `pulumi stack export` printed."""
    return compared(stack, of_export(document), [])


def compared(stack: Stack, before: Sequence[Resource], after: Sequence[Resource]) -> EnginePlan:
    """Two sets of resources compared; `stack` is that of the later one."""
    changes = compare(before, after)
    found = effects(changes, stack.config, old=before)
    return EnginePlan(changes=tuple(changes), effects=found, resources=tuple(after))


def refuse_foreign_namespace(stack: Stack, *, adopt: bool = False) -> None:
    """Raise Failure if the namespace in a cluster that is there belongs to something else.

    `adopt`: a stack of another name may have made it.
    """
    if not isinstance(stack.config.cloud, NebiusCloud):
        there = next(iter(reach(stack).items("namespace", stack.config.cluster.namespace)), None)
        refuse_foreign(there)
        if not adopt:
            refuse_other_stack(there, stack.name)


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
    return jobs_touched(kubectl, namespace, old=old, new=new, rolled=rolled(planned.changes))


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


def steps_of(stack: Stack, document: Mapping[str, Any], printed: str, *, failed: bool) -> EnginePlan:
    """What `pulumi preview --json` has printed: what the engine would do, in its order.

    `document`: what `pulumi stack export` printed before. Raises Failure with the engine's words if it has failed.
    """
    changes, resources, warnings = read_steps(printed, failed=failed)
    found = effects(changes, stack.config, old=of_export(document))
    return EnginePlan(changes=changes, effects=found, resources=resources, warnings=warnings)


def read_steps(printed: str, *, failed: bool) -> tuple[tuple[Change, ...], tuple[Resource, ...], tuple[str, ...]]:
    """The changes, all resources that are to be, and the warnings."""
    try:
        document = json.loads(printed)
    except ValueError as error:
        raise Failure(f"pulumi preview printed no JSON: {printed.strip() or 'nothing'}") from error
    if failed:
        raise Failure("pulumi preview failed: " + ("\n".join(_said(document, "error")) or "it says no reason"))
    steps = document.get("steps", [])
    found: dict[str, Change] = {}
    for step in steps:
        change = _change(step)
        if change is not None:
            found.setdefault(step["urn"], change)
    kept = (step for step in steps if step["op"] in {*_ACTIONS, "same"})
    resources = tuple(item for step in kept for item in _resource(step, "newState"))
    return tuple(_with_causes(list(found.values()))), resources, tuple(_said(document, "warning"))


def _said(document: Mapping[str, Any], severity: str) -> list[str]:
    told = [item for item in document.get("diagnostics", []) if item.get("severity") == severity]
    return [item["message"].strip().removeprefix(f"{severity}: ") for item in told]


def _resource(step: Mapping[str, Any], state: str) -> list[Resource]:
    """The resource as it was or as it will be; none for components, and for how the engine reaches the cluster."""
    told = step.get(state) or {}
    # Where the new one is made first, the engine has marked the old one as to be deleted before it prints this.
    return of_states([{"urn": step["urn"], **mapped(told, _plain), "delete": False}] if told else [])


def _plain(leaf: Any) -> Any:
    return _HIDDEN.get(leaf, leaf) if isinstance(leaf, str) else leaf


def _change(step: Mapping[str, Any]) -> Change | None:
    """The change of one resource; None where nothing is changed."""
    old, new = (next(iter(_resource(step, state)), None) for state in ("oldState", "newState"))
    resource = new or old
    if step["op"] not in _ACTIONS or resource is None:
        return None
    action = _ACTIONS[step["op"]]
    properties = tuple(_properties(step, old, new)) if old and new else ()
    forcing = tuple(item for item in properties if _forces(step, item.path))
    if action == "update" and not properties:
        return None  # not ready when it was refreshed, as a pool whose nodes wait for jobs: the engine waits once more
    return Change(
        action=action,
        resource=resource,
        before=old,
        properties=properties,
        because=(forcing or properties) if action == "replace" else (),
    )


def _forces(step: Mapping[str, Any], path: str) -> bool:
    """Whether this property makes the engine replace the resource. Not every provider says more than the first name.

    Either may name what holds the other: a provider says `a[0].b` of a list that we show as a whole.
    """
    detailed = [at for at, told in (step.get("detailedDiff") or {}).items() if "replace" in told["kind"]]
    if not detailed:
        return _first(path) in (step.get("replaceReasons") or [])
    return any(all(ours == theirs for ours, theirs in zip(_names(path), _names(at), strict=False)) for at in detailed)


def _names(path: str) -> list[str]:
    """The names in a path, without places in lists: a provider counts where we show the element's name."""
    return re.sub(r"\[[^]]*\]", "", path).split(".")


def _with_causes(found: Sequence[Change]) -> Iterator[Change]:
    """With what forces another to be made anew: then nobody decides about that one by itself."""
    anew = {change.resource.urn for change in found if change.action == "replace"}
    for change in found:
        causes = [_cause(change.resource, item, anew) for item in change.because]
        yield replace(change, cause=causes[0]) if causes and all(causes) else change


def _cause(resource: Resource, item: PropertyChange, anew: set[str]) -> str:
    """URN of the resource whose new id, which nobody knows yet, is this property; empty if it is not one."""
    if "<unknown>" not in str(item.new):
        return ""
    return next((urn for urn in resource.sources.get(_first(item.path), ()) if urn in anew), "")


def _properties(step: Mapping[str, Any], old: Resource, new: Resource) -> Iterator[PropertyChange]:
    """What differs in the inputs. The engine masks secrets: of one that changed it only says that it did."""
    found = list(differences(printable(old.inputs), printable(new.inputs), secret=new.kind == "Secret"))
    yield from found
    reasons = (*(step.get("diffReasons") or []), *(step.get("replaceReasons") or []))
    told = set(step.get("detailedDiff") or reasons)
    seen = {_first(item.path) for item in found}
    for path in sorted(told):
        if _first(path) not in seen:
            secret = contains(new.inputs.get(_first(path)), Secret)
            hidden = "<secret>" if secret else "<unknown>"
            yield PropertyChange(path=path, old=hidden, new=hidden)


def _first(path: str) -> str:
    return re.split(r"[.[]", path, maxsplit=1)[0]
