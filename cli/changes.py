"""What an apply would change, compared with what is in the cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any, Literal

from cli.kubectl import FIELD_MANAGER, Kubectl, as_list
from cli.manifests import Manifest

KINDS = (
    "configmap",
    "daemonset",
    "deployment",
    "job",
    "networkpolicy",
    "persistentvolumeclaim",
    "poddisruptionbudget",
    "role",
    "rolebinding",
    "secret",
    "service",
    "serviceaccount",
    "statefulset",
)
"""What a stack has in its namespace (a test holds that these are all), as `kubectl get` takes them."""

Action = Literal["create", "update", "replace", "delete"]

SYMBOLS: Mapping[Action, str] = {"create": "+", "update": "~", "replace": "+-", "delete": "-"}

_NOT_OURS = (
    ("metadata", "managedFields"),
    ("metadata", "generation"),
    ("metadata", "resourceVersion"),
    ("metadata", "creationTimestamp"),
    ("metadata", "uid"),
    ("status",),
)
"""What the API server writes itself."""


@dataclass(frozen=True, kw_only=True)
class PropertyChange:
    """One property that differs; None stands for absent."""

    path: str
    old: Any
    new: Any


@dataclass(frozen=True, kw_only=True)
class Change:
    """One object that an apply would touch."""

    action: Action
    kind: str
    name: str
    properties: tuple[PropertyChange, ...] = ()


def changes(
    kubectl: Kubectl,
    objects: Sequence[Manifest],
    left: Sequence[tuple[str, str]],
    *,
    known: Mapping[tuple[str, str], dict[str, Any]] | None = None,
) -> list[Change]:
    """What applying the objects would do. `left` names (kind, name) of objects that are no longer among them.

    `known`: the objects that exist, where somebody has just asked for them.

    The API server itself tells, by a dry run, what each object would become: so defaults are no differences, and what
    was changed by hand is one.
    """
    live = _get(kubectl, objects) if known is None else known
    found: list[Change] = []
    existing = [manifest for manifest in objects if key(manifest.document) in live]
    outcome = _dry_run(kubectl, existing)
    for manifest in objects:
        at = key(manifest.document)
        if at not in live:
            found.append(Change(action="create", kind=manifest.kind, name=manifest.name))
        elif at not in outcome:
            found.append(Change(action="replace", kind=manifest.kind, name=manifest.name))
        else:
            secret = manifest.kind == "Secret"
            properties = tuple(differences(_comparable(live[at]), _comparable(outcome[at]), secret=secret))
            if properties:
                found.append(Change(action="update", kind=manifest.kind, name=manifest.name, properties=properties))
    return found + [Change(action="delete", kind=kind, name=name) for kind, name in left]


def key(document: Mapping[str, Any]) -> tuple[str, str]:
    """Kind and name: unique, since all objects are in one namespace or in none."""
    return str(document["kind"]), str(document["metadata"]["name"])


def objects_in(kubectl: Kubectl, namespace: str) -> dict[tuple[str, str], dict[str, Any]]:
    """All objects of `KINDS` in a namespace, whoever made them: one request a kind, however many pools there are."""
    return {key(item): item for item in kubectl.items(",".join(KINDS), "-n", namespace)}


def live_objects(
    kubectl: Kubectl, objects: Sequence[Manifest], inside: Mapping[tuple[str, str], dict[str, Any]]
) -> dict[tuple[str, str], dict[str, Any]]:
    """Those of the objects that exist. `inside`: what `objects_in` has found just now."""
    others = [item for item in objects if item.cluster_scoped or item.kind.lower() not in KINDS]
    wanted = {key(item.document) for item in objects}
    return {at: item for at, item in inside.items() if at in wanted} | _get(kubectl, others)


def _get(kubectl: Kubectl, objects: Sequence[Manifest]) -> dict[tuple[str, str], dict[str, Any]]:
    if not objects:
        return {}
    printed = kubectl.run(
        "get", "--ignore-not-found", "-f", "-", "-o", "json", stdin=as_list([item.document for item in objects])
    ).stdout
    return {key(item): item for item in _items(printed)}


def _dry_run(kubectl: Kubectl, objects: Sequence[Manifest]) -> dict[tuple[str, str], dict[str, Any]]:
    """What the objects would become. Missing are those that cannot be changed in place."""
    if not objects:
        return {}
    documents = as_list([item.document for item in objects])
    # Failing objects (immutable fields) are reported on standard error and left out; the others are printed.
    done = kubectl.run(*APPLY, "--dry-run=server", "-f", "-", "-o", "json", stdin=documents, check=False)
    if done.returncode != 0 and "immutable" not in done.stderr and "Forbidden: updates to" not in done.stderr:
        kubectl.run(*APPLY, "--dry-run=server", "-f", "-", stdin=documents)
    return {key(item): item for item in _items(done.stdout)}


APPLY = ("apply", "--server-side", "--force-conflicts", f"--field-manager={FIELD_MANAGER}")


def _items(printed: str) -> list[dict[str, Any]]:
    if not printed.strip():
        return []
    document = json.loads(printed)
    return list(document["items"]) if document["kind"] == "List" else [document]


def _comparable(document: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in document.items() if (name,) not in _NOT_OURS}
    kept["metadata"] = {
        name: value for name, value in document["metadata"].items() if ("metadata", name) not in _NOT_OURS
    }
    return kept


def differences(old: Any, new: Any, path: str = "", *, secret: bool) -> Iterator[PropertyChange]:
    """The properties that differ between two objects, each with its path; what a Secret holds is not shown."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted({*old, *new}):
            below = f"{path}.{name}" if path else str(name)
            yield from differences(old.get(name), new.get(name), below, secret=secret)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from differences(before, after, f"{path}[{_label(after, index)}]", secret=secret)
    elif old != new:
        hidden = secret and path.startswith(("data", "stringData"))
        yield PropertyChange(path=path, old="<secret>" if hidden else old, new="<secret>" if hidden else new)


def _label(item: Any, index: int) -> str:
    return str(item["name"]) if isinstance(item, dict) and "name" in item else str(index)


_LONGEST = 300
"""Characters of a value that are printed to people."""
_BEFORE = 40
"""Characters before the first difference of two long values."""
_MOST_LINES = 40
"""Lines of a changed text that are printed to people."""


def described(item: PropertyChange) -> list[str]:
    """A changed property as it is printed to people: what differs of long values, and of texts the lines that do."""
    changed = changed_lines(item.old, item.new)
    if changed:
        left = len(changed) - _MOST_LINES
        more = [f"  ... {left} more changed lines; --json has all"] if left > 0 else []
        return [f"{item.path}:", *(f"  {sign} {line}" for sign, line in changed[:_MOST_LINES]), *more]
    old, new = around_difference(_text(item.old), _text(item.new))
    return [f"{item.path}: {old} => {new}"]


def changed_lines(old: object, new: object) -> list[tuple[str, str]]:
    """The lines that differ with `-` or `+`, if both are texts and one has several lines; long lines are cut."""
    if not isinstance(old, str) or not isinstance(new, str) or "\n" not in old + new:
        return []
    before, after = old.splitlines(), new.splitlines()
    found: list[tuple[str, str]] = []
    for action, start, end, new_start, new_end in SequenceMatcher(None, before, after).get_opcodes():
        if action == "equal":
            continue
        # Line by line as far as there are two to compare: what differs may be far to the right.
        pairs = [around_difference(*pair) for pair in zip_longest(before[start:end], after[new_start:new_end])]
        found += [("-", line) for line, _ in pairs[: end - start]]
        found += [("+", line) for _, line in pairs[: new_end - new_start]]
    return found


def around_difference(old: str | None, new: str | None) -> tuple[str, str]:
    """Both texts as they are, or, if one is long, a part of each from shortly before their first difference on."""
    old, new = old or "", new or ""
    if max(len(old), len(new)) <= _LONGEST:
        return old, new
    alike = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    start = max(alike - _BEFORE, 0)
    return _part(old, start), _part(new, start)


def _part(text: str, start: int) -> str:
    part = text[start : start + _LONGEST]
    if part == text:
        return text
    end = "..." if start + _LONGEST < len(text) else ""
    return f"{'...' if start else ''}{part}{end} ({len(text)} characters)"


def _text(value: object) -> str:
    if value is None:
        return "(absent)"
    return value if isinstance(value, str) and "\n" not in value else json.dumps(value)
