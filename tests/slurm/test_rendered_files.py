"""The files that we render, loaded by the real daemons of both Slurm versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from config import load_config
from slurm.conf import config_hash, render
from slurm.sizing import node_conf
from tests import stacks
from tests.slurm.sandbox import SlurmSandbox, wait_until


def rendered(sections: dict[str, Any], version: str) -> dict[str, str]:
    """Files of a stack with another Slurm version, without accounts of real machines."""
    return render(load_config(stacks.with_change(sections, "slurm.version", version)))


def test_slurmctld_takes_the_development_stack_without_a_complaint(
    make_sandbox: Callable[..., SlurmSandbox], slurm_version: str
) -> None:
    files = rendered(stacks.dev(), slurm_version)
    sandbox = make_sandbox(slurm_version, config=files, workers=1)
    log = sandbox.controller.log("config-agent")
    assert f"configuration {config_hash(files)} is active" in log
    assert "complains" not in log, log


def test_nodes_register_with_what_the_stack_file_says_and_run_a_job(
    make_sandbox: Callable[..., SlurmSandbox], slurm_version: str
) -> None:
    sections = stacks.with_change(stacks.dev(), "worker_nodes.default.features", ["avx2"])
    pool = load_config(sections).worker_nodes["default"]
    sandbox = make_sandbox(
        slurm_version, config=rendered(sections, slurm_version), workers=2, node_conf=node_conf("default", pool)
    )
    shown = sandbox.run("sinfo --noheader --Node --format='%N %c %m %f %P'").stdout.splitlines()
    assert [line.split() for line in shown] == [
        [f"default-{n}", "2", "1920", "default,avx2", "main*"] for n in range(2)
    ]
    # Jobs of root are refused on purpose, so the job is another user's.
    done = sandbox.run("setpriv --reuid=nobody --regid=nogroup --clear-groups srun -N2 hostname", pod="default-0")
    assert sorted(done.stdout.split()) == ["default-0", "default-1"], done.stderr + sandbox.logs()
    assert "Root" in sandbox.run("srun hostname").stderr or sandbox.run("srun hostname").returncode != 0


def test_pools_without_nodes_and_gpu_pools_are_fine_for_slurmctld(
    make_sandbox: Callable[..., SlurmSandbox], slurm_version: str
) -> None:
    sandbox = make_sandbox(slurm_version, config=rendered(stacks.existing(), slurm_version), workers=0)
    partitions = sandbox.run("scontrol show partition --oneliner").stdout
    assert "PartitionName=main" in partitions
    assert "PartitionName=gpu" in partitions
    assert "PriorityTier=10" in partitions
    assert "GresTypes               = gpu" in sandbox.run("scontrol show config").stdout


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("slurm.settings.DefMemPerCPUU", 1, "DefMemPerCPUU"),
        ("partitions.main.settings", {"Nodes": "nowhere-1"}, "nowhere-1"),
        ("partitions.main.settings", {"PreemptMode": "nonsense"}, "PreemptMode"),
    ],
)
def test_what_our_own_checks_cannot_know_slurm_rejects_by_name(
    make_sandbox: Callable[..., SlurmSandbox], slurm_version: str, path: str, value: object, message: str
) -> None:
    good = rendered(stacks.dev(), slurm_version)
    sandbox = make_sandbox(slurm_version, config=good, workers=0)
    sandbox.set_config(rendered(stacks.with_change(stacks.dev(), path, value), slurm_version))
    wait_until(lambda: "rejected" in sandbox.controller.log("config-agent"), "a rejection", 40)
    assert message in sandbox.controller.log("config-agent")
    assert "is UP" in sandbox.run("scontrol ping").stdout
