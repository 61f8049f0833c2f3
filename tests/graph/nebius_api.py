"""Checks recorded Nebius resources against the API itself, with the descriptors in the vendor's official SDK.

Each resource becomes the request that would create it; the request is parsed and judged by the rules that the service
enforces. A rule that this interpreter does not know is an error, so that none is passed over; but expressions in CEL
are left out, which repeat what the configuration says of names and ranges.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from google.protobuf import json_format, message_factory
from google.protobuf.message import Message

from cli.program.recording import Registration
from cli.program.values import Secret, Unknown, reveal
from components.clouds.nebius import immutable as types

REQUESTS: Mapping[str, tuple[str, str, str]] = {
    types.CLUSTER: ("mk8s.v1", "CreateClusterRequest", "mk8scluster"),
    types.NODE_GROUP: ("mk8s.v1", "CreateNodeGroupRequest", "mk8snodegroup"),
    types.FILESYSTEM: ("compute.v1", "CreateFilesystemRequest", "computefilesystem"),
    types.GPU_CLUSTER: ("compute.v1", "CreateGpuClusterRequest", "computegpucluster"),
    types.NETWORK: ("vpc.v1", "CreateNetworkRequest", "vpcnetwork"),
    types.SUBNET: ("vpc.v1", "CreateSubnetRequest", "vpcsubnet"),
    types.ALLOCATION: ("vpc.v1", "CreateAllocationRequest", "vpcallocation"),
    types.SERVICE_ACCOUNT: ("iam.v1", "CreateServiceAccountRequest", "serviceaccount"),
    types.GROUP: ("iam.v1", "CreateGroupRequest", "group"),
    types.GROUP_MEMBERSHIP: ("iam.v1", "CreateGroupMembershipRequest", "groupmembership"),
    types.ACCESS_PERMIT: ("iam.v1", "CreateAccessPermitRequest", "accesspermit"),
}
"""Package and name of the request that creates a resource, and how ids of such resources begin."""

_METADATA = ("name", "parentId", "labels")
_IMMUTABLE, _OUTPUT_ONLY = "IMMUTABLE", "OUTPUT_ONLY"
Ids = Mapping[str, set[str]]
Descriptor = Any
"""Of a message, a field or a oneof. The library's types differ from what its own methods return."""


@dataclass(frozen=True)
class Violation:
    """A rule of the API that a resource breaks."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def check(resources: Iterable[Registration]) -> dict[str, list[str]]:
    """What is wrong, by the name of each Nebius resource with a fault."""
    listed = [item for item in resources if item.type.startswith("nebius:")]
    ids: dict[str, set[str]] = {}
    for item in listed:
        ids.setdefault(item.id, set()).add(REQUESTS[item.type][2])
    found = {f"{item.type.rsplit(':', 1)[1]} {item.name}": violations(item.type, item.inputs, ids) for item in listed}
    return {name: faults for name, faults in found.items() if faults}


def violations(type_: str, inputs: Mapping[str, Any], ids: Ids) -> list[str]:
    """What is wrong with the inputs of one resource. `ids`: kinds of the recording's own stand-ins for ids."""
    request = request_class(type_)()
    metadata = {key: value for key, value in inputs.items() if key in _METADATA}
    spec = {key: value for key, value in inputs.items() if key not in _METADATA}
    try:
        json_format.ParseDict(_known({"metadata": metadata, "spec": spec}), request)
    except json_format.ParseError as error:
        return [str(error)]
    return [str(violation) for violation in _judge(request, "", ids)]


def immutable_paths(type_: str) -> set[str]:
    """Paths of the inputs that the API says can never change, in the provider's spelling."""
    request: Descriptor = request_class(type_).DESCRIPTOR
    return set(_marked(request.fields_by_name["spec"].message_type, "", frozenset()))


def request_class(type_: str) -> type[Message]:
    """The request that creates a resource of this type."""
    package, name, _ = REQUESTS[type_]
    request = getattr(importlib.import_module(f"nebius.api.nebius.{package}"), name)
    made: type[Message] = message_factory.GetMessageClass(request.get_descriptor().provider_descriptor)
    return made


def _known(value: Any) -> Any:
    """The value with secrets in the clear and without what is not known yet."""
    match value:
        case Secret():
            return _known(reveal(value))
        case dict():
            return {key: _known(item) for key, item in value.items() if not isinstance(item, Unknown)}
        case list():
            return [_known(item) for item in value if not isinstance(item, Unknown)]
        case _:
            return value


# What the descriptors say


@cache
def _options(descriptor: Descriptor, kind: str, extension: str) -> Any:
    """An option of a descriptor. The SDK has its own pool, and only that one knows the extensions."""
    pool = (descriptor if kind == "MessageOptions" else descriptor.containing_type).file.pool
    options: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"google.protobuf.{kind}"))()
    options.ParseFromString(descriptor.GetOptions().SerializeToString())
    return options.Extensions[pool.FindExtensionByName(extension)]


def _behaviours(field: Descriptor) -> set[str]:
    numbers = _options(field, "FieldOptions", "nebius.field_behavior")
    pool = field.containing_type.file.pool
    names = pool.FindEnumTypeByName("nebius.FieldBehavior").values_by_number
    return {names[number].name for number in numbers}


def _marked(message: Descriptor, prefix: str, above: frozenset[str]) -> Iterator[str]:
    if message.full_name in above:
        return
    for field in message.fields:
        path = f"{prefix}{_camel(field.name)}"
        if _IMMUTABLE in _behaviours(field):
            yield path
        elif field.message_type is not None:
            yield from _marked(field.message_type, f"{path}.", above | {message.full_name})


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


# What they demand


def _judge(message: Message, path: str, ids: Ids) -> Iterator[Violation]:
    descriptor: Descriptor = message.DESCRIPTOR
    for oneof in descriptor.oneofs:
        if _options(oneof, "OneofOptions", "buf.validate.oneof").required and not message.WhichOneof(oneof.name):
            yield Violation(path, f"one of {[field.name for field in oneof.fields]} is required")
    for field in descriptor.fields:
        yield from _judge_field(message, field, f"{path}.{field.name}" if path else field.name, ids)


def _judge_field(message: Message, field: Descriptor, path: str, ids: Ids) -> Iterator[Violation]:
    value, given = getattr(message, field.name), _is_given(message, field)
    rules = _options(field, "FieldOptions", "buf.validate.field")
    if rules.required and not given:
        yield Violation(path, "is required")
    if not given:
        return
    if _OUTPUT_ONLY in _behaviours(field):
        yield Violation(path, "is set by the service only")
    yield from _apply(rules, value, path)
    yield from _id_kind(field, value, path, ids)
    if field.message_type is not None and not field.message_type.GetOptions().map_entry:
        for number, item in enumerate(value if field.is_repeated else [value]):
            yield from _judge(item, f"{path}[{number}]" if field.is_repeated else path, ids)


def _is_given(message: Message, field: Descriptor) -> bool:
    if field.is_repeated or not field.has_presence:
        return bool(getattr(message, field.name))
    return message.HasField(field.name)


def _id_kind(field: Descriptor, value: Any, path: str, ids: Ids) -> Iterator[Violation]:
    """Ids begin with what they name. A parent's kind is said where the metadata are."""
    nid = _options(field, "FieldOptions", "nebius.nid")
    if nid.parent_resource:
        path, value, kinds = f"{path}.parent_id", value.parent_id, set(nid.parent_resource)
    else:
        kinds = set(nid.resource)
    if kinds == {"computereservation"}:
        kinds = {"computereservation", "capacityblockgroup", "capacityblock"}  # the recipe's example has one of those
    if not kinds:
        return
    for item in [value] if isinstance(value, str) else value:
        if item and not kinds & ids.get(item, {item.partition("-")[0]}):
            yield Violation(path, f"{item!r} is no id of {' or '.join(sorted(kinds))}")


def _apply(rules: Any, value: Any, path: str) -> Iterator[Violation]:
    for rule, bound in rules.ListFields():
        match rule.name:
            case "required" | "ignore" | "cel":
                pass
            case "repeated" | "map" | "string" | "int32" | "int64" | "uint32" | "duration":
                for limit, number in bound.ListFields():
                    yield from _limit(limit.name, number, value, path)
            case _:
                raise NotImplementedError(f"{path}: a rule of kind {rule.name}")


def _limit(name: str, bound: Any, value: Any, path: str) -> Iterator[Violation]:
    if name == "items":
        for number, item in enumerate(value):
            yield from _apply(bound, item, f"{path}[{number}]")
        return
    if name not in _LIMITS:
        raise NotImplementedError(f"{path}: a limit {name}")
    if not _LIMITS[name](value, bound):
        yield Violation(path, f"{value!r} breaks {name} {bound}".replace("\n", " "))


def _seconds(value: Any) -> float:
    return float(getattr(value, "seconds", value))


_LIMITS: Mapping[str, Callable[[Any, Any], bool]] = {
    "gte": lambda value, bound: _seconds(value) >= _seconds(bound),
    "lte": lambda value, bound: _seconds(value) <= _seconds(bound),
    "in": lambda value, bound: value in bound,
    "min_len": lambda value, bound: len(value) >= bound,
    "max_len": lambda value, bound: len(value) <= bound,
    "max_bytes": lambda value, bound: len(value.encode()) <= bound,
    "max_items": lambda value, bound: len(value) <= bound,
    "max_pairs": lambda value, bound: len(value) <= bound,
    # The service's engine searches too: a pattern `|^...$` lets everything pass.
    "pattern": lambda value, bound: re.search(bound, value) is not None,
}
