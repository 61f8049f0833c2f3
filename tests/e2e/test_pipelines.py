"""The scripts of examples/ci on a real cluster: a change is previewed and applied, one by hand is found at night."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.e2e.harness import SlurmOnKubernetes
from tests.stacks import ROOT, with_change

SIZE = "worker_nodes.default.size"


def script(slurm: SlurmOnKubernetes, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script on the cluster's stack file, as a pipeline does."""
    command = {"SLURMSTACK": str(Path(sys.executable).parent / "slurmstack"), "SLURMSTACK_ENGINE": slurm.engine}
    return subprocess.run(
        [ROOT / "examples" / "ci" / "scripts" / name, str(slurm.file), *arguments],
        cwd=ROOT,
        env={**os.environ, **command, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def replicas(slurm: SlurmOnKubernetes) -> int:
    (live,) = slurm.kubectl.items("statefulset", "default", "-n", slurm.namespace)
    return int(live["spec"]["replicas"])


def test_a_change_is_previewed_in_the_request_and_applied_when_it_is_merged(two_nodes: SlurmOnKubernetes) -> None:
    slurm, before = two_nodes, two_nodes.sections
    slurm.sections = with_change(before, SIZE, 1)
    comment = slurm.directory / "comment.md"
    done = script(slurm, "preview.sh", str(comment))
    assert done.returncode == 0, done.stderr
    assert "! update StatefulSet default\n-   spec.replicas: 2\n+   spec.replicas: 1\n" in comment.read_text()
    assert replicas(slurm) == 2
    done = script(slurm, "apply.sh")
    assert done.returncode == 0, done.stderr
    assert replicas(slurm) == 1
    done = script(slurm, "drift.sh")
    assert (done.returncode, done.stdout) == (0, ""), "a change that was applied is no drift"
    slurm.kubectl.run("scale", "-n", slurm.namespace, "statefulset/default", "--replicas=2")
    done = script(slurm, "drift.sh")
    slurm.sections = before  # as the cluster is now
    assert done.returncode == 4, done.stderr
    assert "! update StatefulSet default\n-   spec.replicas: 2\n+   spec.replicas: 1\n" in done.stdout


def test_a_change_that_is_refused_is_not_applied(two_nodes: SlurmOnKubernetes) -> None:
    slurm, before = two_nodes, two_nodes.sections
    slurm.sections = with_change(with_change(before, "jail.size", "1Gi"), SIZE, 1)
    comment = slurm.directory / "comment.md"
    previewed, applied = script(slurm, "preview.sh", str(comment)), script(slurm, "apply.sh")
    slurm.sections = before
    assert (previewed.returncode, applied.returncode) == (3, 3), previewed.stderr + applied.stderr
    assert "**refused**" in comment.read_text()
    assert "jail.size: 1Gi is less than the 20Gi" in comment.read_text()
    assert replicas(slurm) == 2
