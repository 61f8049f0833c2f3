"""Faults on purpose on real Kubernetes: what is broken mends itself, and each job has run exactly once."""

from __future__ import annotations

import json

from tests.e2e.harness import SlurmOnKubernetes, slurmstack


def test_jobs_run_exactly_once_through_a_minute_of_faults_and_nothing_of_it_stays(two_nodes: SlurmOnKubernetes) -> None:
    slurm, mine = two_nodes, ("--config", str(two_nodes.file))
    # 10 s: controller, deleted; 29.1 s: mariadbd, killed; 45.7 s: slurmdbd, ended
    planned = json.loads(slurmstack("chaos", "--seed", "2885", "--minutes", "1", "--dry-run", "--json", *mine).stdout)
    assert [fault["component"] for fault in planned["faults"]] == ["controller", "database", "slurmdbd"]
    done = json.loads(slurmstack("chaos", "--seed", "2885", "--minutes", "1", "--json", *mine).stdout)
    assert done["ok"], done
    assert [fault["component"] for fault in done["faults"]] == ["controller", "database", "slurmdbd"]
    assert not [fault for fault in done["faults"] if "skipped" in fault], done["faults"]
    assert done["accepted"] == done["jobs"]["once"] + done["jobs"]["requeued"] > 20
    assert not slurm.slurm("squeue --noheader")
    assert not slurm.ssh("ls -d .slurmstack-chaos-* 2>/dev/null; true")
    slurm.await_idle("default-0", "default-1")
