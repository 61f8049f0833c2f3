"""Properties that the resource graph of every stack has."""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
from typing import Any

import kubernetes_validate
import pytest

from cli.change.plan import KINDS
from cli.program.recording import GeneratedValues, Recording, Registration, record
from cli.program.values import printable, reveal
from config import ConfigError, load_config
from config.base import parse_bytes
from tests import stacks
from tests.graph.objects import KUBERNETES, containers, everything, recorded, templates, volumes
from tests.recordings import of_type

OUTSIDE = (
    "kubernetes:core/v1:Namespace",
    "kubernetes:core/v1:PersistentVolume",
    "kubernetes:rbac.authorization.k8s.io/v1:ClusterRole",
    "kubernetes:rbac.authorization.k8s.io/v1:ClusterRoleBinding",
    "kubernetes:scheduling.k8s.io/v1:PriorityClass",
    "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy",
    "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicyBinding",
)
"""Objects of the cluster that are in no namespace."""
NO_BUILT_IN = ("kubernetes:helm.sh/", "kubernetes:mellanox.com/")
"""Charts and their objects, which Kubernetes' own schema does not know."""


def _all_objects(recording: Recording) -> list[Registration]:
    """Every object that Kubernetes itself knows."""
    kinds = [item for item in recording if item.type.startswith("kubernetes:")]
    return [item for item in kinds if not item.type.startswith(NO_BUILT_IN)]


def _objects(recording: Recording) -> list[Registration]:
    """Objects of the Slurm cluster itself: those that a cloud installs for its machines are not in its namespace."""
    return [item for item in _all_objects(recording) if "slurmstack:index:GpuStack" not in item.parent]


def _pod_specs(recording: Recording) -> list[tuple[str, dict[str, Any]]]:
    return [(name, template["spec"]) for name, template in templates(recording, of_machines=True).items()]


def test_no_pod_can_fill_the_disk_of_its_machine(recording: Recording) -> None:
    for name, pod in _pod_specs(recording):
        for container in containers(pod).values():
            resources = container["resources"]
            assert "ephemeral-storage" in resources["limits"], f"{name}: {container['name']}"
            assert "ephemeral-storage" in resources["requests"], f"{name}: {container['name']}"
        for volume in pod.get("volumes") or []:
            assert "emptyDir" not in volume or "sizeLimit" in volume["emptyDir"], f"{name}: {volume['name']}"


def test_what_the_stack_file_says_of_sizes_is_in_the_pods() -> None:
    login = {"tmp": "3Gi", "memory_limit": "5Gi"}
    pods = dict(_pod_specs(recorded(login=login, worker_nodes__cpu__tmp="1Ti")))
    for name, daemon, tmp in (("slurm-login-pods", "sshd", "3Gi"), ("slurm-pool-cpu-pods", "slurmd", "1Ti")):
        assert volumes(pods[name])["tmp"]["emptyDir"]["sizeLimit"] == tmp
        limits = containers(pods[name])[daemon]["resources"]["limits"]
        assert int(limits["ephemeral-storage"]) > parse_bytes(tmp), "the pod would be ended before its /tmp is full"
    assert pods["slurm-login-pods"]["containers"][0]["resources"]["limits"]["memory"] == "5Gi"


def test_everything_in_the_namespace_goes_away_with_it_but_what_has_to_go_before(recording: Recording) -> None:
    """Workers leave with slurmctld's help, and slurmctld needs its Secrets, its account and its Service until then."""
    (namespace,) = of_type(recording, "kubernetes:core/v1:Namespace")
    before = set()
    for item in _objects(recording):
        if item.type.endswith((":StatefulSet", ":PodTemplate")) and not item.deleted_with:
            before.add(reveal(item.inputs)["metadata"]["labels"]["app.kubernetes.io/component"])
        else:
            assert item.deleted_with == ("" if item.type in OUTSIDE else namespace.urn), item.name
    assert before == {"worker", "controller"}


def test_nothing_that_outlives_a_namespace_or_a_cluster_is_left_behind_by_destroy(recording: Recording) -> None:
    """Pulumi does not delete what goes away with something else. A mistake leaves objects, or machines that cost."""
    known = {item.urn: item for item in recording}
    for item in recording:
        match known[item.deleted_with].type.rsplit(":", 1)[1] if item.deleted_with else "":
            case "Namespace":
                if item.type.startswith("kubernetes:"):
                    assert "namespace" in reveal(item.inputs)["metadata"], item.urn
                elif item.custom:  # nothing but a value in Pulumi's state
                    assert item.type == "random:index/randomBytes:RandomBytes", item.urn
            case "Mk8sV1Cluster":
                assert not item.type.startswith("nebius:"), item.urn
            case target:
                assert target == "", item.urn


def test_a_look_at_the_namespace_finds_every_kind_that_a_stack_has_in_it(recording: Recording) -> None:
    objects = [item for item in recording if item.type.startswith("kubernetes:") and "kind" in item.inputs]
    inside = {item.inputs["kind"].lower() for item in objects if "namespace" in item.inputs["metadata"]}
    assert {"statefulset", "configmap"} <= inside <= set(KINDS)
    assert "daemonset" in KINDS, "an earlier version's log collector, which `up` deletes"


class _Traceable(GeneratedValues):
    """Random values that can be looked for."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def random_bytes(self, name: str, length: int) -> str:
        del name
        self.made.append(base64.b64encode(secrets.token_bytes(length)).decode())
        return self.made[-1]


@pytest.mark.parametrize("stack", ["dev", "existing", "existing_full", "nebius_full"])
def test_no_secret_value_is_anywhere_but_in_a_secret(stack: str) -> None:
    generated = _Traceable()
    recording = record(getattr(stacks, stack)(), stack=stack, generated=generated)
    values = list(generated.made)
    for item in of_type(recording, "kubernetes:core/v1:Secret"):
        revealed = reveal(item.inputs)
        data = {**revealed.get("data", {}), **revealed.get("stringData", {})}
        values += [value for key, value in data.items() if not key.endswith(".crt")]  # certificates are public
    derived = 3 if of_type(recording, "slurmstack:index:Rest") else 2
    assert len(set(values)) == len(generated.made) + derived, "derived: the host keys, and that of the REST API"
    printed = json.dumps([printable(item.inputs) for item in recording]) + json.dumps(printable(recording.outputs))
    clear = json.dumps([reveal(item.inputs) for item in recording if item.type != "kubernetes:core/v1:Secret"])
    for value in values:
        assert value not in printed
        assert value not in clear
        assert json.dumps(value)[1:-1] not in printed + clear


def test_everything_that_a_pod_refers_to_exists(recording: Recording) -> None:
    objects = _all_objects(recording)
    names = {(item.type.rsplit(":", 1)[1], reveal(item.inputs)["metadata"]["name"]) for item in objects}
    for owner, spec in _pod_specs(recording):
        for volume in spec.get("volumes", []):
            match volume:
                case {"secret": {"optional": True}}:
                    pass
                case {"secret": {"secretName": "backup" | "ldap"}}:
                    pass  # the stack file names it, and a person makes it
                case {"secret": source}:
                    assert ("Secret", source["secretName"]) in names, owner
                case {"configMap": source}:
                    assert ("ConfigMap", source["name"]) in names, owner
                case {"persistentVolumeClaim": source}:
                    assert ("PersistentVolumeClaim", source["claimName"]) in names, owner
        if "serviceAccountName" in spec:
            assert ("ServiceAccount", spec["serviceAccountName"]) in names, owner


def test_no_pool_can_take_the_name_of_something_else() -> None:
    """A stack with all that there is, and with a pool of each name in it that `validate` lets a pool have."""
    sections = everything()

    def names(given: dict[str, Any]) -> list[tuple[str, str]]:
        return [(item.type, item.inputs["metadata"]["name"]) for item in _objects(record(given, stack="prod"))]

    pools = sections["worker_nodes"]
    for name in sorted({name for _, name in names(sections)}):
        with contextlib.suppress(ConfigError):
            load_config(stacks.with_change(sections, f"worker_nodes.{name}", pools["cpu"]))
            pools[name] = pools["cpu"]
    assert pools.keys() >= {"kube-state", "exporter"}
    found = names(sections)
    assert sorted(set(found)) == sorted(found)


def test_every_object_is_valid_against_the_schema_of_kubernetes(recording: Recording) -> None:
    for item in _all_objects(recording):
        kubernetes_validate.validate(reveal(item.inputs), KUBERNETES, strict=True)


@pytest.mark.parametrize(("protect", "expected"), [(None, True), (True, True), (False, False)])
def test_what_holds_data_is_protected_unless_the_stack_says_otherwise(protect: bool | None, expected: bool) -> None:
    recording = record({**stacks.existing(), "protect": protect}, stack="prod")
    protected = {item.type.rsplit(":", 1)[1] for item in recording if item.protect}
    assert protected == ({"Namespace", "PersistentVolumeClaim", "RandomBytes"} if expected else set())


def test_the_number_of_resources_depends_on_pools_and_not_on_nodes() -> None:
    def count(pools: int, size: int) -> int:
        return len(record(stacks.with_pools(pools, size), stack="dev").registrations)

    one, two, ten = count(1, 2), count(2, 2), count(10, 2)
    assert count(1, 500) == one
    assert ten - one == 9 * (two - one)
    assert two - one == 2, "a component and a StatefulSet"


def test_slurmctld_gets_another_release_after_slurmdbd(recording: Recording) -> None:
    """Slurm wants slurmdbd no older: the engine goes by what depends on what."""
    sets = {item.name: item for item in of_type(recording, "kubernetes:apps/v1:StatefulSet")}
    assert sets["slurm-accounting-pods"].urn in sets["slurm-controller-pods"].dependencies
