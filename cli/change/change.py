"""One change of one resource: what `preview` shows and `safety` judges, whoever found it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from cli.program.recording import Recording
from cli.program.values import Resource, from_state, printable, same

Action = Literal["create", "update", "replace", "delete"]

SYMBOLS: Mapping[Action, str] = {"create": "+", "update": "~", "replace": "+-", "delete": "-"}


@dataclass(frozen=True, kw_only=True)
class PropertyChange:
    """One property that differs; None stands for absent."""

    path: str
    old: Any
    new: Any


@dataclass(frozen=True, kw_only=True)
class Change:
    """What becomes of one resource."""

    action: Action
    resource: Resource
    """As it will be; as it was, if it is deleted."""
    before: Resource | None = None
    """As it was; None if it is made."""
    properties: tuple[PropertyChange, ...] = ()
    because: tuple[PropertyChange, ...] = ()
    """Of a replacement: the properties that force it, where anybody says which."""
    cause: str = ""
    """URN of the resource whose replacement forces this one."""
    complaint: str = ""
    """What the API server says where it will not change the object in place."""

    @property
    def kind(self) -> str:
        """Kind of the resource, as people call it."""
        return self.resource.kind

    @property
    def name(self) -> str:
        """Name of the resource, as people know it."""
        return self.resource.title

    def as_data(self) -> dict[str, Any]:
        """The change for scripts."""
        properties = tuple(asdict(item) for item in self.properties)
        return {"action": self.action, "kind": self.kind, "name": self.name, "properties": properties}


def counts_of(found: Iterable[Change]) -> dict[str, int]:
    """Number of resources by action."""
    counts = Counter(change.action for change in found)
    return {action: counts[action] for action in SYMBOLS if counts[action]}


def differences(old: Any, new: Any, path: str = "", *, secret: bool = False) -> Iterator[PropertyChange]:
    """The properties that differ between two values, each with its path. `secret`: below `data` nothing is shown."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in sorted({*old, *new}):
            yield from differences(old.get(name), new.get(name), f"{path}.{name}" if path else name, secret=secret)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from differences(before, after, f"{path}[{_label(after, index)}]", secret=secret)
    elif not same(old, new):
        hidden = secret and path.startswith(("data", "stringData"))
        shown = ("<secret>", "<secret>") if hidden else (printable(old), printable(new))
        yield PropertyChange(path=path, old=shown[0], new=shown[1])


def _label(item: Any, index: int) -> str:
    return str(item["name"]) if isinstance(item, Mapping) and "name" in item else str(index)


def of_object(document: Mapping[str, Any]) -> Resource:
    """A Kubernetes object, as its API server has it or is to have it."""
    group = str(document.get("apiVersion", "v1"))
    type_ = f"kubernetes:{group if '/' in group else f'core/{group}'}:{document['kind']}"
    return Resource(type=type_, name=str(document["metadata"]["name"]), inputs=document)


def of_recording(recording: Recording) -> Sequence[Resource]:
    """The resources of one run of the program that a provider manages, each after what it depends on."""
    return [item for item in recording if item.custom and not item.type.startswith("pulumi:")]


def of_states(states: Iterable[Mapping[str, Any]]) -> list[Resource]:
    """Resources as `pulumi stack export` and `pulumi preview --json` print their states. Secrets stay encrypted."""
    return [
        Resource(
            urn=item["urn"],
            type=item["type"],
            name=item["urn"].rsplit("::", 1)[1],
            id=item.get("id", ""),
            inputs=from_state(item.get("inputs") or {}),
            protect=item.get("protect", False),
            retained=item.get("retainOnDelete", False),
            sources={name: tuple(urns or ()) for name, urns in (item.get("propertyDependencies") or {}).items()},
        )
        for item in states
        if item.get("custom")
        and not item["type"].startswith("pulumi:")
        # External: read, never managed. Delete: the old half of a replacement that has not come to its end.
        and not item.get("external")
        and not item.get("delete")
    ]
