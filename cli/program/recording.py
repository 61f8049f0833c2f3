"""Runs the Pulumi program in this process and records everything that it registers; makes Kubernetes objects of it.

The SDK's mock monitor stands in for the engine; nothing is created and no cluster is asked. What the program
registers is what `pulumi up` would be told, so rendered manifests, the graph and the tests all see the same
resources.
"""

from __future__ import annotations

import asyncio
import base64
import importlib
import json
import logging
import runpy
import secrets
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pulumi
from google.protobuf import empty_pb2, json_format
from pulumi.runtime import mocks
from pulumi.runtime.proto import resource_pb2
from pulumi.runtime.settings import get_root_resource
from pulumi.runtime.stack import run_pulumi_func

from cli.errors import Failure
from cli.program.values import SECRET, SIGNATURE, UNKNOWN, Resource, Secret, Unknown, contains, from_wire, reveal
from cli.stack import PROJECT_ROOT
from config.load import PROJECT

PROGRAM = PROJECT_ROOT / "__main__.py"

_STACK_TYPE = "pulumi:pulumi:Stack"


@dataclass(frozen=True, kw_only=True)
class Registration(Resource):
    """One resource as the program registered it: in the provider's spelling, `Secret` and `UNKNOWN` mark values."""

    inputs: dict[str, Any]
    parent: str
    """URN of the parent, empty for the stack itself."""
    custom: bool
    """Whether a provider manages it; false for components."""
    provider: str
    """Reference `URN::id` of an explicit provider, else empty. Inherited, as `protect` and the next one."""
    deleted_with: str
    """URN of the resource with which it goes, so that Pulumi does not delete it by itself; empty: it does."""
    dependencies: tuple[str, ...]
    deleted_first: bool = False
    """Whether a replacement deletes the old one before it makes the new one."""
    timeouts: Mapping[str, str] = field(default_factory=dict)
    """How long the provider may take for `create`, `update` and `delete` (`30m`), where that is not its own default."""


@dataclass
class Recording:
    """Everything that one run of the program registered, each after what it depends on."""

    registrations: list[Registration] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    """URNs of components that registered their outputs, once for each time."""
    outputs: dict[str, Any] = field(default_factory=dict)
    """What the stack exports."""

    def __iter__(self) -> Iterator[Registration]:
        return iter(self.registrations)


class GeneratedValues:
    """Source of random values for the run. This one makes stand-ins, for runs whose secrets nobody reads."""

    def random_bytes(self, name: str, length: int) -> str:
        """Base64 of `length` bytes for the RandomBytes resource of this name, the same each time."""
        del name
        return base64.b64encode(bytes(length)).decode()


class KeptValues(GeneratedValues):
    """Values by resource name. Those that are missing are made; `changed` tells whether any were."""

    def __init__(self, values: dict[str, str]) -> None:
        self.values = values
        self.changed = False

    def random_bytes(self, name: str, length: int) -> str:
        """The kept value of this resource, or a new one from the system's random source."""
        if name not in self.values:
            self.values[name] = base64.b64encode(secrets.token_bytes(length)).decode()
            self.changed = True
        return self.values[name]


_STAND_INS: Mapping[str, Mapping[str, Any]] = {
    "nebius:index/mk8sV1Cluster:Mk8sV1Cluster": {
        "controlPlane": {
            "endpoints": {"publicEndpoint": "https://public.invalid", "privateEndpoint": "https://private.invalid"},
            "auth": {"clusterCaCertificate": "a certificate"},
        }
    },
    "nebius:index/vpcV1Allocation:VpcV1Allocation": {"details": {"allocatedCidr": "192.0.2.1/32"}},
}
"""What clouds say of resources that they made (`status`), as far as the program uses it: stand-ins, like the ids."""


@dataclass(frozen=True, kw_only=True)
class Made:
    """A resource of the cloud that is there, as Pulumi's state has it."""

    id: str
    outputs: Mapping[str, Any]


class _Mocks(mocks.Mocks):
    """Answers a registration as a provider would: inputs come back as outputs, random values are made.

    In a preview nobody knows more than the inputs.
    """

    def __init__(self, generated: GeneratedValues, made: Mapping[tuple[str, str], Made], *, preview: bool) -> None:
        self._generated = generated
        self._made = made
        self._preview = preview

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[Any, Any]]:
        made = self._made.get((args.typ, args.name))
        if made is not None:
            return made.id, {**made.outputs, **args.inputs}
        outputs = dict(args.inputs)
        if self._preview:
            return None, outputs
        if args.typ in _STAND_INS:
            outputs["status"] = _STAND_INS[args.typ]
        if args.typ == "random:index/randomBytes:RandomBytes":
            value = self._generated.random_bytes(args.name, int(args.inputs["length"]))
            outputs["base64"] = {SIGNATURE: SECRET, "value": value}
        return f"{args.name}-id", outputs

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[Any, Any], list[tuple[str, str]] | None]:
        raise NotImplementedError(f"the program calls {args.token}, which a recording cannot answer")


class _RecordingMonitor(mocks.MockMonitor):
    """A mock monitor that keeps the requests, and makes URNs as the engine does (with all ancestors' types)."""

    def __init__(self, recording: Recording, answers: _Mocks, loops: list[asyncio.AbstractEventLoop]) -> None:
        super().__init__(answers)
        self._recording = recording
        self._loops = loops
        self._registered: dict[str, Registration] = {}

    def make_urn(self, parent: str, type_: str, name: str) -> str:
        ancestors = parent.split("::")[2] if parent else _STACK_TYPE
        qualified = type_ if ancestors == _STACK_TYPE else f"{ancestors}${type_}"
        return f"urn:pulumi:{pulumi.get_stack()}::{pulumi.get_project()}::{qualified}::{name}"

    def RegisterResource(self, request: resource_pb2.RegisterResourceRequest) -> Any:  # noqa: N802  the wire's own name
        urn = self.make_urn(request.parent, request.type, request.name)
        self._give_loop()
        response = super().RegisterResource(request)  # type: ignore[no-untyped-call]  # the SDK's mocks have no types
        if request.type != _STACK_TYPE:
            _inherit(request, self._registered.get(request.parent))
            self._registered[urn] = _registration(urn, request, response.id)
            self._recording.registrations.append(self._registered[urn])
        return response

    def _give_loop(self) -> None:
        """The mocks would give this thread an event loop otherwise, which nobody closes."""
        try:
            asyncio.get_event_loop()
        except RuntimeError:
            self._loops.append(asyncio.new_event_loop())
            asyncio.set_event_loop(self._loops[-1])

    def RegisterResourceOutputs(self, request: resource_pb2.RegisterResourceOutputsRequest) -> empty_pb2.Empty:  # noqa: N802
        if f"::{_STACK_TYPE}::" not in request.urn:
            self._recording.finished.append(request.urn)
        elif request.outputs:
            self._recording.outputs.update(from_wire(json_format.MessageToDict(request.outputs)))
        return empty_pb2.Empty()


@contextmanager
def program_loading() -> Iterator[None]:
    """Load the program's libraries meanwhile: half a second that a wait for the cluster can use."""
    with ThreadPoolExecutor() as pool:
        pool.submit(importlib.import_module, "components.cluster")
        yield


def record(
    sections: Mapping[str, Any],
    *,
    stack: str,
    generated: GeneratedValues | None = None,
    made: Mapping[tuple[str, str], Made] | None = None,
    preview: bool = False,
) -> Recording:
    """Run the program with the sections of a stack file and return what it registered.

    Check the sections with `config.load_config` first: the program only reports what is wrong and exits. Exceptions of
    the program pass through. `stack` is the stack's name, which is part of every URN. `made` tells of resources that
    are there, by type and name, so that what is computed from them is what it really is. With `preview` all others are
    still to be made, and what only their providers can tell is unknown.
    """
    recording = Recording()
    loops: list[asyncio.AbstractEventLoop] = []
    values = {f"{PROJECT}:{name}": json.dumps(value) for name, value in sections.items()}

    async def run() -> None:
        # The runtime keeps contexts per task: mocks and configuration are set where the program runs.
        answers = _Mocks(generated or GeneratedValues(), made or {}, preview=preview)
        monitor = _RecordingMonitor(recording, answers, loops)
        log = logging.getLogger("slurmstack.program")
        pulumi.runtime.set_mocks(answers, project=PROJECT, stack=stack, preview=preview, logger=log, monitor=monitor)
        pulumi.runtime.set_all_config(values, [])
        await run_pulumi_func(_run_program)
        root = get_root_resource()
        if root is not None:
            for name, output in getattr(root, "outputs", {}).items():
                recording.outputs[name] = await _resolve(output)

    try:
        asyncio.run(run())
    finally:
        for loop in loops:
            loop.close()
    recording.registrations = _in_order(recording.registrations)
    return recording


def _in_order(registrations: list[Registration]) -> list[Registration]:
    """Parents and dependencies first, else by URN: requests come from several threads, in any order."""
    waiting = {registration.urn: registration for registration in sorted(registrations, key=lambda item: item.urn)}
    ordered: list[Registration] = []
    while waiting:
        ready = [item for item in waiting.values() if not {item.parent, *item.dependencies} & waiting.keys()]
        for item in ready or list(waiting.values()):  # a cycle, which a test of the graph reports
            ordered.append(item)
            del waiting[item.urn]
    return ordered


def _run_program() -> None:
    runpy.run_path(str(PROGRAM), run_name="__main__")


async def _resolve(output: Any) -> Any:
    value = pulumi.Output.from_input(output)
    if not await value.is_known():
        return UNKNOWN
    resolved = await value.future()
    return Secret(resolved) if await value.is_secret() else resolved


def _inherit(request: resource_pb2.RegisterResourceRequest, parent: Registration | None) -> None:
    """What the engine takes from the parent, in `inheritFromParent` of pkg/resource/deploy/source_eval.go.

    A child cannot refuse `deletedWith`: none of its own is not told from the parent's. The fourth that is inherited,
    the provider, the SDK has chosen already.
    """
    if parent is None:
        return
    request.deletedWith = request.deletedWith or parent.deleted_with
    if not request.HasField("protect"):
        request.protect = parent.protect
    if not request.HasField("retainOnDelete"):
        request.retainOnDelete = parent.retained


def _registration(urn: str, request: resource_pb2.RegisterResourceRequest, id_: str) -> Registration:
    return Registration(
        urn=urn,
        type=request.type,
        name=request.name,
        parent=request.parent,
        custom=request.custom,
        provider=request.provider,
        protect=request.protect,
        deleted_with=request.deletedWith,
        dependencies=tuple(sorted(set(request.dependencies))),
        aliases=tuple(alias.urn or alias.spec.name for alias in request.aliases),
        inputs=from_wire(json_format.MessageToDict(request.object)),
        id=id_,
        retained=request.retainOnDelete,
        deleted_first=request.deleteBeforeReplace,
        timeouts=json_format.MessageToDict(request.customTimeouts),
        sources={name: tuple(sorted(item.urns)) for name, item in request.propertyDependencies.items()},
    )


# Kubernetes objects

_CLUSTER_SCOPED = frozenset(
    (
        "Namespace", "PersistentVolume", "ClusterRole", "ClusterRoleBinding", "PriorityClass",
        "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
    )
)  # fmt: skip

_WITHOUT_MANIFEST = ("pulumi:providers:", "slurmstack:index:", "random:index/")

_HELM = "kubernetes:helm.sh/"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """One Kubernetes object, as it is sent to the API server."""

    document: dict[str, Any]

    @property
    def kind(self) -> str:
        """Kind of the object."""
        return str(self.document["kind"])

    @property
    def name(self) -> str:
        """Name of the object."""
        return str(self.document["metadata"]["name"])

    @property
    def cluster_scoped(self) -> bool:
        """Whether the object is in no namespace."""
        return self.kind in _CLUSTER_SCOPED

    @property
    def key(self) -> tuple[str, str]:
        """Kind and name: unique, since all objects are in one namespace or in none."""
        return self.kind, self.name


def manifests(recording: Recording) -> list[Manifest]:
    """All Kubernetes objects, in the order in which they were registered, which is one that can be applied.

    Raises Failure for resources that only the Pulumi engine can make, and for values that nobody knows before an
    update.
    """
    refuse_cloud_resources(recording)
    return [_manifest(registration) for registration in recording if registration.type.startswith("kubernetes:")]


def refuse_cloud_resources(recording: Recording) -> None:
    """Raise Failure if the program registers resources that only the Pulumi engine can make: a cloud's, and charts."""
    here = ("kubernetes:", *_WITHOUT_MANIFEST)
    foreign = [item for item in recording if item.type.startswith(_HELM) or not item.type.startswith(here)]
    if foreign:
        raise Failure(
            f"this stack has {len(foreign)} cloud resources, which kubectl cannot make",
            hint="install the pulumi command as https://www.pulumi.com/docs/install/ says; then `slurmstack up` makes "
            "them. For a cluster that is already there: slurmstack:cloud: {kind: existing, context: ...}",
        )


def _manifest(registration: Registration) -> Manifest:
    inputs = registration.inputs
    if contains(inputs, Unknown):
        raise Failure(f"{registration.type} {registration.name} has values that are only known after an update")
    if inputs["kind"] != "Secret" and contains(inputs, Secret):
        raise Failure(f"{registration.type} {registration.name} would show a secret in the clear; this is a bug")
    return Manifest(document=reveal(inputs))
