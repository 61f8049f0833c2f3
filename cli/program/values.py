"""Resources of a stack and their values: as Pulumi's wire and state have them, in the clear, and as they are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pulumi.runtime import rpc

SIGNATURE = "4dabf18193072939515e22adb298388d"  # key that marks a special value in Pulumi's wire format
SECRET = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105  the mark of a secret, not a secret


@dataclass(frozen=True)
class Secret:
    """A value that Pulumi would encrypt in its state; None where it did."""

    value: Any


class Unknown:
    """A value that only an update can tell."""


UNKNOWN = Unknown()


def from_wire(value: Any) -> Any:
    """A value of Pulumi's wire format: numbers are doubles there, secrets and unknown values have marks."""
    if isinstance(value, dict):
        if value.get(SIGNATURE) == SECRET:
            return Secret(from_wire(value.get("value")))
        return {key: from_wire(value[key]) for key in sorted(value)}  # the wire has no order
    if isinstance(value, list):
        return [from_wire(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return UNKNOWN if value == rpc.UNKNOWN else value


def from_state(value: Any) -> Any:
    """A value of Pulumi's state: secrets stay encrypted, and what providers keep for themselves is left out."""
    if isinstance(value, dict):
        if SIGNATURE in value:
            return Secret(None)
        return {key: from_state(item) for key, item in value.items() if not key.startswith("__")}
    return [from_state(item) for item in value] if isinstance(value, list) else value


def mapped(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """The value with each leaf replaced. Secrets are leaves."""
    if isinstance(value, Mapping):
        return {key: mapped(item, leaf) for key, item in value.items()}
    return [mapped(item, leaf) for item in value] if isinstance(value, list) else leaf(value)


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each leaf with its path. Secrets are leaves."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(item, (*path, str(key)))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(item, (*path, str(index)))
    else:
        yield path, value


def contains(value: Any, kind: type) -> bool:
    """Whether any leaf is of this class."""
    return any(isinstance(leaf, kind) for _, leaf in leaves(value))


def reveal(value: Any) -> Any:
    """The value with its secrets in the clear, for what goes to the cluster or into a file of its owner's."""
    return mapped(value, lambda leaf: reveal(leaf.value) if isinstance(leaf, Secret) else printable(leaf))


def printable(value: Any) -> Any:
    """The value as it may be printed: secrets as `<secret>`, unknown values as `<unknown>`."""
    return mapped(value, lambda leaf: _MARKS.get(type(leaf), leaf))


_MARKS: Mapping[type, str] = {Secret: "<secret>", Unknown: "<unknown>"}


def same(old: Any, new: Any) -> bool:
    """Whether two values are the same, as far as anybody can tell: encrypted and unknown ones may be."""
    if isinstance(old, Secret) and isinstance(new, Secret) and None not in (old.value, new.value):
        return same(old.value, new.value)
    if isinstance(old, Secret | Unknown) or isinstance(new, Secret | Unknown):
        return True
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return all(same(old.get(key), new.get(key)) for key in {*old, *new})
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(same, old, new))
    return bool(old == new)


_KINDS: Mapping[str, str] = {
    "Mk8sV1Cluster": "Kubernetes cluster",
    "Mk8sV1NodeGroup": "node group",
    "ComputeV1Filesystem": "file system",
    "ComputeV1GpuCluster": "GPU cluster",
    "VpcV1Network": "network",
    "VpcV1Subnet": "subnet",
    "VpcV1Allocation": "address",
    "StorageV1Bucket": "bucket",
    "IamV1ServiceAccount": "service account",
    "IamV2AccessKey": "access key",
    "IamV1AuthPublicKey": "public key",
    "IamV1Group": "group",
    "IamV1GroupMembership": "group membership",
    "IamV1AccessPermit": "access permit",
}
"""Types of cloud resources as people call them."""


@dataclass(frozen=True, kw_only=True)
class Resource:
    """What a provider manages: as a run of the program registered it, or as Pulumi's state or the cluster has it."""

    type: str
    name: str
    """The program's name for it."""
    inputs: Mapping[str, Any]
    urn: str = ""
    id: str = ""
    """What the provider calls it; a stand-in in a run that was not told of the resource."""
    protect: bool = False
    retained: bool = False
    """Whether Pulumi only forgets it where it would delete it."""
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """URNs of the resources that each top-level input is computed from."""
    aliases: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """Its type in people's words: `file system`, `StatefulSet`."""
        short = self.type.rsplit(":", 1)[1]
        return _KINDS.get(short, short)

    @property
    def title(self) -> str:
        """What people call it: a Kubernetes object's or cloud resource's own name, else the program's."""
        named = self.inputs.get("metadata") if self.type.startswith("kubernetes:") else self.inputs
        return str((named or {}).get("name") or self.name)
