"""What `pulumi preview --json` prints: what the engine would do, and all resources that are to be."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pulumi.runtime import rpc

from cli.errors import Failure
from cli.program.values import UNKNOWN, Secret, contains, mapped, printable
from cli.safety.change import Action, Change, PropertyChange, Resource, differences, of_states

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


def steps_of(printed: str, *, failed: bool) -> tuple[list[Change], list[Resource]]:
    """The changes in the engine's order, and the resources that are to be.

    Raises Failure with the engine's words if it has failed.
    """
    try:
        document = json.loads(printed)
    except ValueError as error:
        raise Failure(f"pulumi preview printed no JSON: {printed.strip() or 'nothing'}") from error
    if failed:
        told = [item for item in document.get("diagnostics", []) if item.get("severity") == "error"]
        words = (item["message"].strip().removeprefix("error: ") for item in told)
        raise Failure("pulumi preview failed: " + ("\n".join(words) or "it says no reason"))
    steps = document.get("steps", [])
    found: dict[str, Change] = {}
    for step in steps:
        change = _change(step)
        if change is not None:
            found.setdefault(step["urn"], change)
    return list(found.values()), [
        item for step in steps if step["op"] in {*_ACTIONS, "same"} for item in _resource(step, "newState")
    ]


def _resource(step: Mapping[str, Any], state: str) -> list[Resource]:
    """The resource as it was or as it will be; none for components, and for how the engine reaches the cluster."""
    told = step.get(state) or {}
    return of_states([{"urn": step["urn"], **mapped(told, _plain)}] if told else [])


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
    if action == "update" and not properties:
        return None  # not ready when it was refreshed, as a pool whose nodes wait for jobs: the engine waits once more
    return Change(
        action=action,
        resource=resource,
        before=old,
        properties=properties,
        because=tuple(item for item in properties if action == "replace" and _forces(step, item.path)),
    )


def _forces(step: Mapping[str, Any], path: str) -> bool:
    """Whether this property makes the engine replace the resource. Not every provider says more than the first name."""
    detailed = {at for at, told in (step.get("detailedDiff") or {}).items() if "replace" in told["kind"]}
    return path in detailed if detailed else _first(path) in (step.get("replaceReasons") or [])


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
