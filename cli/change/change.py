"""Changes of resources: of one, and those that lead from one set of resources to another, whoever found them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from cli.program.recording import Recording
from cli.program.values import Resource, Secret, Unknown, from_state, leaves, printable, same

Action = Literal["create", "update", "replace", "delete"]


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
    return {action: counts[action] for action in get_args(Action) if counts[action]}


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


_PLACE = ("metadata.name", "metadata.namespace")

_KUBERNETES: Mapping[str, tuple[str, ...]] = {
    "StatefulSet": (
        "spec.selector",
        "spec.serviceName",
        "spec.podManagementPolicy",
        "spec.revisionHistoryLimit",
        "spec.volumeClaimTemplates",
    ),
    "DaemonSet": ("spec.selector",),
    "Deployment": ("spec.selector",),
    "Job": ("spec.selector", "spec.template", "spec.completions", "spec.completionMode"),
    "PersistentVolumeClaim": (
        "spec.accessModes",
        "spec.selector",
        "spec.storageClassName",
        "spec.volumeMode",
        "spec.volumeName",
    ),
    "PersistentVolume": ("spec.csi", "spec.hostPath", "spec.local", "spec.nfs", "spec.volumeMode", "spec.nodeAffinity"),
    "Secret": ("type",),
    "Service": ("spec.clusterIP",),
    "RoleBinding": ("roleRef",),
    "ClusterRoleBinding": ("roleRef",),
}
"""Properties whose change makes Pulumi's Kubernetes provider delete the object and make it anew, as it lists them."""

_OTHERS: Mapping[str, tuple[str, ...]] = {"random:index/randomBytes:RandomBytes": ("length", "keepers")}


def immutable_properties(type_: str) -> tuple[str, ...]:
    """Paths of the inputs that can never change, in the provider's spelling: `spec.storageClassName`."""
    if type_.startswith("kubernetes:"):
        return (*_PLACE, *_KUBERNETES.get(type_.rsplit(":", 1)[1], ()))
    if type_.startswith("nebius:"):
        from components.clouds.nebius.immutable import IMMUTABLE  # noqa: PLC0415  only for those who are in that cloud

        return tuple(IMMUTABLE.get(type_, ()))
    return _OTHERS.get(type_, ())


def compare(old: Sequence[Resource], new: Sequence[Resource]) -> list[Change]:
    """The changes; what stays as it is, is left out.

    New resources must come after those that they depend on, so that one which is made anew takes along what can only
    be made with it (a cluster its node groups).
    """
    before = {item.urn: item for item in old}
    matched: set[str] = set()
    found: list[Change] = []
    replaced: dict[str, Resource] = {}
    for item in new:
        was = next((before[urn] for urn in _former(item, old) if urn in before and urn not in matched), None)
        if was is None:
            found.append(Change(action="create", resource=item))
            continue
        matched.add(was.urn)
        change = _change(was, item, replaced)
        if change is not None:
            found.append(change)
            if change.action == "replace":
                replaced[item.urn] = item
    return found + [Change(action="delete", resource=item, before=item) for item in old if item.urn not in matched]


def _former(item: Resource, old: Sequence[Resource]) -> Iterator[str]:
    """URNs under which the resource may have been known, the present one first."""
    yield item.urn
    for alias in item.aliases:
        if alias.startswith("urn:"):
            yield alias
        else:
            yield from (other.urn for other in old if other.type == item.type and other.name == alias)


def _change(was: Resource, item: Resource, replaced: Mapping[str, Resource]) -> Change | None:
    because, cause = _forced(was, item), ""
    if not because:
        because, cause = _forced_by_another(item, replaced)
    properties = tuple(differences(was.inputs, item.inputs, secret=item.kind == "Secret"))
    if not because and not properties:
        return None
    return Change(
        action="replace" if because else "update",
        resource=item,
        before=was,
        properties=properties,
        because=because,
        cause=cause,
    )


def _forced(was: Resource, item: Resource) -> tuple[PropertyChange, ...]:
    pairs = ((path, _at(was.inputs, path), _at(item.inputs, path)) for path in immutable_properties(item.type))
    return tuple(
        PropertyChange(path=path, old=printable(old), new=printable(new))
        for path, old, new in pairs
        if not same(old, new)
    )


def _forced_by_another(item: Resource, replaced: Mapping[str, Resource]) -> tuple[tuple[PropertyChange, ...], str]:
    """The property that is the id of a resource which is made anew, and that resource's URN."""
    for path in immutable_properties(item.type):
        for urn in item.sources.get(path.split(".", maxsplit=1)[0], ()):
            id_ = replaced[urn].id if urn in replaced else ""
            if id_ and any(leaf == id_ for _, leaf in leaves(_at(item.inputs, path))):
                return (PropertyChange(path=path, old=id_, new=None),), urn
    return (), ""


def _at(value: Any, path: str) -> Any:
    """What lies at a dotted path; of a list, what lies there in each element."""
    for part in path.split("."):
        if isinstance(value, Secret | Unknown):
            return value
        if isinstance(value, list):
            value = [item.get(part) if isinstance(item, Mapping) else None for item in value]
        else:
            value = value.get(part) if isinstance(value, Mapping) else None
    return value
