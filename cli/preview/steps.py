"""What `pulumi preview --json` prints, as changes of objects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pulumi.runtime import rpc

from cli.changes import Action, Change, PropertyChange, differences
from cli.effects import kind_of, name_of
from cli.errors import Failure
from cli.replacements import Recorded

_ACTIONS: Mapping[str, Action] = {
    "create": "create",
    "import": "create",
    "update": "update",
    "replace": "replace",
    "create-replacement": "replace",
    "delete": "delete",
}
"""Steps of the engine that change something; the halves of a replacement are one change."""

_MASK = "<secret>"

_SHOWN: Mapping[str, str] = {"[secret]": _MASK, rpc.UNKNOWN: "<unknown>"}
"""How the engine writes what it does not show or know."""


def changes_of(printed: str, *, failed: bool) -> list[Change]:
    """The objects that the steps touch, in the engine's order. Raises Failure with its words if it has failed."""
    try:
        document = json.loads(printed)
    except ValueError as error:
        raise Failure(f"pulumi preview printed no JSON: {printed.strip() or 'nothing'}") from error
    if failed:
        told = [item for item in document.get("diagnostics", []) if item.get("severity") == "error"]
        words = (item["message"].strip().removeprefix("error: ") for item in told)
        raise Failure("pulumi preview failed: " + ("\n".join(words) or "it says no reason"))
    found: dict[str, Change] = {}
    for step in document.get("steps", []):
        change = _change(step)
        if change is not None:
            found.setdefault(step["urn"], change)
    return list(found.values())


def _change(step: Mapping[str, Any]) -> Change | None:
    """The change of one object; None for components, and where nothing is changed."""
    old, new = step.get("oldState") or {}, step.get("newState") or {}
    state = new or old
    # How the engine reaches the cluster is no object; after a resumed update it differs once.
    if step["op"] not in _ACTIONS or not state.get("custom") or state["type"].startswith("pulumi:providers:"):
        return None
    kind = kind_of(state["type"])
    resource = Recorded(
        urn=step["urn"],
        type=state["type"],
        name=step["urn"].rsplit("::", 1)[1],
        id="",
        inputs=state.get("inputs") or {},
        protect=False,
        retained=False,
    )
    action = _ACTIONS[step["op"]]
    properties = tuple(_properties(step, old, new, secret=kind == "Secret")) if old and new else ()
    if action == "update" and not properties:
        return None  # not ready when it was refreshed, as a pool whose nodes wait for jobs: the engine waits once more
    return Change(action=action, kind=kind, name=name_of(resource), properties=properties)


def _properties(
    step: Mapping[str, Any], old: Mapping[str, Any], new: Mapping[str, Any], *, secret: bool
) -> Iterator[PropertyChange]:
    """What differs in the inputs. The engine masks secrets: of one that changed it only says that it did."""
    before, after = _printable(old.get("inputs") or {}), _printable(new.get("inputs") or {})
    found = list(differences(before, after, secret=secret))
    yield from found
    told = set(step.get("detailedDiff") or {}) or {
        *(step.get("diffReasons") or []),
        *(step.get("replaceReasons") or []),
    }
    seen = {_first(item.path) for item in found}
    for path in sorted(told):
        if _first(path) not in seen:
            hidden = _MASK if _MASK in json.dumps(after.get(_first(path))) else "<unknown>"
            yield PropertyChange(path=path, old=hidden, new=hidden)


def _first(path: str) -> str:
    return re.split(r"[.[]", path, maxsplit=1)[0]


def _printable(value: Any) -> Any:
    """The inputs as they may be printed, without what providers keep in them for themselves."""
    if isinstance(value, dict):
        return {key: _printable(item) for key, item in value.items() if not key.startswith("__")}
    if isinstance(value, list):
        return [_printable(item) for item in value]
    return _SHOWN.get(value, value) if isinstance(value, str) else value
