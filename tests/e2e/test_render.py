"""Rendered files on real Kubernetes: applied in one go, changed, pruned and repaired as Argo CD and Flux do it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.harness import SlurmOnKubernetes, make_key, slurmstack, wait_until
from tests.stacks import dev, with_change

PRUNE = "kustomize.toolkit.fluxcd.io/prune"
"""Flux does not prune what says `disabled` here."""


@dataclass
class RenderedSlurm(SlurmOnKubernetes):
    """A cluster whose stack file is rendered and whose files a GitOps tool would apply."""

    @property
    def output(self) -> Path:
        """The directory that would be committed."""
        return self.directory / "manifests"

    def render(self) -> None:
        slurmstack("render", "--config", str(self.file), "--output", str(self.output))

    def synchronise(self, path: str = "", value: Any = None) -> None:
        """Edit the stack file, render, and do as Argo CD and Flux do: apply the directory, then prune what left."""
        before = self._rendered()
        if path:
            self.sections = with_change(self.sections, path, value)
        self.render()
        self.kubectl.run("apply", "-f", str(self.output))
        for kind, name in sorted(before - self._rendered()):
            self._prune(kind, name)

    def staying(self, kind: str) -> set[str]:
        """Names of the objects of a kind that nobody has deleted; a claim in use would stay for a while."""
        found = self.kubectl.items(kind, "-n", self.namespace)
        return {item["metadata"]["name"] for item in found if "deletionTimestamp" not in item["metadata"]}

    def _rendered(self) -> set[tuple[str, str]]:
        documents = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in self.output.glob("*.yaml")]
        return {(document["kind"], document["metadata"]["name"]) for document in documents}

    def _prune(self, kind: str, name: str) -> None:
        for live in self.kubectl.items(kind, name, "-n", self.namespace):
            if live["metadata"].get("annotations", {}).get(PRUNE) != "disabled":
                self.kubectl.run("delete", kind, name, "-n", self.namespace, "--wait=false")


@pytest.fixture(scope="module")
def slurm(local_kubernetes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RenderedSlurm]:
    """One worker and one login node, made by a single `kubectl apply -f` of what was rendered."""
    directory = tmp_path_factory.mktemp("rendered")
    sections: dict[str, Any] = dev() | {"cluster": {"namespace": "e2e-rendered"}}
    pool = sections["worker_nodes"]["default"]
    sections["worker_nodes"] = {"default": {**pool, "size": 1}, "spare": {**pool, "size": 0}}
    sections["login"] = {"size": 1, "service_type": "ClusterIP"}
    sections["users"] = {"alice": {"uid": 10001, "ssh_authorized_keys": [make_key(directory / "key")]}}
    cluster = RenderedSlurm(engine="kubectl", directory=directory, sections=sections)
    cluster.render()
    try:
        cluster.kubectl.run("apply", "-f", str(cluster.output))
        cluster.await_idle("default-0")
    except BaseException:
        print(f"logs: {cluster.collect_logs('setup-rendered')}")
        raise
    yield cluster
    slurmstack("destroy", "--yes", "--kill-jobs", "--delete-data", "--engine", "kubectl", "--config", str(cluster.file))


def await_job_of_a_user(slurm: SlurmOnKubernetes) -> None:
    """Wait until a user can log in and run a job."""
    wait_until(lambda: slurm.ssh("srun hostname", check=False).strip() == "default-0", "alice runs a job", timeout=300)


def test_one_apply_of_the_directory_is_enough_for_the_first_job_of_a_user(slurm: RenderedSlurm) -> None:
    await_job_of_a_user(slurm)


def test_up_refuses_a_cluster_whose_keys_are_kept_elsewhere(slurm: RenderedSlurm) -> None:
    done = slurm.up(check=False)
    assert done.returncode == 1
    assert "has keys that were not made by this command" in done.stderr


def test_a_changed_setting_takes_effect(slurm: RenderedSlurm) -> None:
    slurm.synchronise("slurm.settings.DefMemPerCPU", 300)
    wait_until(lambda: "300" in slurm.slurm("scontrol show config | grep ^DefMemPerCPU"), "the new setting is active")
    jobs = slurm.kubectl.items("job", "-n", slurm.namespace, "-l", "app.kubernetes.io/component=configuration")
    assert len(jobs) == 1, "the job of the configuration before is pruned"


def test_what_left_the_stack_is_pruned_but_never_a_claim(slurm: RenderedSlurm) -> None:
    del slurm.sections["worker_nodes"]["spare"]
    slurm.synchronise("accounting.enabled", value=False)
    assert slurm.staying("statefulset") == {"controller", "default", "login"}
    assert slurm.staying("persistentvolumeclaim") == {"controller-state", "database-data", "jail"}
