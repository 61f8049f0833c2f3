"""What `pulumi preview --json` prints: what the engine would do, and all resources that are to be."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pulumi.runtime import rpc

from cli.change.change import Action, Change, PropertyChange, differences, of_states
from cli.errors import Failure
from cli.program.values import UNKNOWN, Resource, Secret, contains, mapped, printable

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
class Steps:
    """What a preview by the engine says."""

    changes: tuple[Change, ...]
    """In the engine's order."""
    resources: tuple[Resource, ...]
    """All that are to be."""
    warnings: tuple[str, ...]
    """Of the engine, of providers and of policy packs."""


def steps_of(printed: str, *, failed: bool) -> Steps:
    """Read what the engine has printed. Raises Failure with its words if it has failed."""
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
    return Steps(
        changes=tuple(_with_causes(list(found.values()))),
        resources=tuple(item for step in kept for item in _resource(step, "newState")),
        warnings=tuple(_said(document, "warning")),
    )


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
    told = set(step.get("detailedDiff") or {}) or {
        *(step.get("diffReasons") or []),
        *(step.get("replaceReasons") or []),
    }
    seen = {_first(item.path) for item in found}
    for path in sorted(told):
        if _first(path) not in seen:
            secret = contains(new.inputs.get(_first(path)), Secret)
            hidden = "<secret>" if secret else "<unknown>"
            yield PropertyChange(path=path, old=hidden, new=hidden)


def _first(path: str) -> str:
    return re.split(r"[.[]", path, maxsplit=1)[0]
