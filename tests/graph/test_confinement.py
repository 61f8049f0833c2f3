"""What no pod of a cluster may do: one property over all pods of all stacks, with its exceptions by name."""

from __future__ import annotations

from typing import Any

import pytest

from cli.program.recording import Recording
from components.kit.pods import ALLOWS_SUDO, SEALED_LATER
from slurm.rights import CAPABILITIES, TEMPORARY, WITHOUT_JAIL
from tests import stacks
from tests.graph.objects import containers, mounts, recorded, templates
from tests.security import pod_table
from tests.stacks import ROOT

TOKENS = {"slurmctld", "config-agent", "health-watch", "elastic", "kube-state"}
"""Containers that talk to the API server. slurmctld's preStop hook waits for the workers to leave."""

OPENS_JAIL = {"sshd", "worker-sshd", "slurmd"}
MOUNTS = {*OPENS_JAIL, "backup-jail", "restore-jail"}
"""Containers with SYS_ADMIN, which they give up."""


NOT_OURS = "-gpu-stack-rdma-plugin"
"""NVIDIA's device plugin: what it needs beyond root was not tried, as that takes a machine with InfiniBand."""


def pods(recording: Recording, *, of_machines: bool = False) -> list[tuple[str, dict[str, Any]]]:
    return [(name, template["spec"]) for name, template in templates(recording, of_machines=of_machines).items()]


def test_no_pod_makes_calls_that_the_runtime_forbids_or_has_a_token_by_itself(recording: Recording) -> None:
    for owner, spec in pods(recording, of_machines=True):
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, owner
        assert spec["automountServiceAccountToken"] is False, owner
        for setting in ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"):
            assert not spec.get(setting) or owner.endswith(NOT_OURS), owner


def test_containers_have_the_capabilities_that_are_written_down_and_no_others(recording: Recording) -> None:
    for owner, spec in pods(recording):
        for name, container in containers(spec).items():
            context = container["securityContext"]
            in_jail = any(volume["name"] == "jail" for volume in spec.get("volumes", []))
            expected = list(WITHOUT_JAIL if name == "slurmd" and not in_jail else CAPABILITIES.get(name, ()))
            limits = container["resources"].get("limits", {})
            if name == "slurmd":
                expected += ["SYS_RESOURCE"] if any(key.startswith("rdma/") for key in limits) else []
            assert context["capabilities"]["drop"] == ["ALL"], (owner, name)
            assert context["capabilities"].get("add", []) == expected, (owner, name)
            assert not context.get("privileged"), (owner, name)
            assert ("SYS_ADMIN" in expected) == (in_jail and name in MOUNTS), (owner, name)
            assert ("appArmorProfile" in context) == ("SYS_ADMIN" in expected), (owner, name)


def test_containers_neither_write_their_root_nor_gain_rights_by_executing(recording: Recording) -> None:
    for owner, spec in pods(recording):
        for name, container in containers(spec).items():
            context = container["securityContext"]
            assert context.get("readOnlyRootFilesystem", False) is (name not in SEALED_LATER), (owner, name)
            assert context.get("allowPrivilegeEscalation", True) is (name in {*ALLOWS_SUDO, *MOUNTS}), (owner, name)
            assert ("/tmp" in mounts(container)) == (name in {*TEMPORARY, *OPENS_JAIL}), (owner, name)


def test_tokens_are_where_they_are_used(recording: Recording) -> None:
    for owner, spec in pods(recording):
        for name, container in containers(spec).items():
            has_token = "/var/run/secrets/kubernetes.io/serviceaccount" in mounts(container)
            assert has_token is (name in TOKENS), (owner, name)
        for volume in spec.get("volumes", []):
            if volume["name"] == "token":  # kube-state-metrics is of its own user, and alone in its pod
                alone = owner == "slurm-kube-state-pods"
                assert volume["projected"]["defaultMode"] == (0o444 if alone else 0o400), "a daemon is not root"


@pytest.mark.parametrize("asked", [False, True])
def test_root_in_a_pod_is_nobody_on_the_machine_if_that_is_asked_for(asked: bool) -> None:
    found = [spec for _, spec in pods(recorded(stacks.existing_full(), cluster={"user_namespaces": asked}))]

    assert {spec.get("hostUsers") for spec in found} == ({False} if asked else {None})
    users = [spec for spec in found if {one["name"] for one in spec["containers"]} & {*ALLOWS_SUDO}]
    no_segments_stay = [{"name": "kernel.shm_rmid_forced", "value": "1"}]
    assert {str(spec["securityContext"].get("sysctls")) for spec in users} == {str(None if asked else no_segments_stay)}


def test_the_table_of_pods_in_the_documentation_is_that_of_the_program() -> None:
    text = (ROOT / "docs/pods.md").read_text(encoding="utf-8")

    assert pod_table.table() in text, "write it anew: python -m tests.security.pod_table"
