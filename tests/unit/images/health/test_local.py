"""What a program knows of the node on which it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.common.health.contract import Node
from images.health.checks import find_checks
from images.health.local import find_local, with_jobs
from images.health.proc import jobs_here
from tests.fakes.node_conf import document
from tests.unit.images.health.places import add_process

ENVIRONMENT = {
    "SLURMD_NODENAME": "h100-3",
    "JAIL": "/jail",
    "POOL": "h100",
    "NODE_CONF": document("CPUs=8 Gres=gpu:h100:8"),
}
SETTINGS = """{"thresholds": {"disks": {"used": 0.5}}, "disabled": ["dns"],
               "pools": {"h100": {"infiniband": true, "local_disks": ["/", "/mnt/scratch"]}, "cpu": {"gpus": 1}}}"""


def test_the_node_is_what_the_pod_says(tmp_path: Path) -> None:
    local = find_local(ENVIRONMENT, tmp_path / "none")
    assert local.node == Node(name="h100-3", gpus=8, jail=Path("/jail"))
    assert local.off == frozenset()
    assert find_local({"JAIL": ""}, tmp_path / "none").node.jail is None


@pytest.mark.parametrize(
    ("conf", "devices", "gpus", "shares"),
    [
        ("gpu:h100:2,shard:3 Feature=gpu:9", "", 2, True),
        ("gpu:3", "GPU-1,GPU-2,GPU-3", 3, False),
        ("gpu:3", "GPU-1,GPU-2,GPU-1", 2, True),
        ("gpu:3", "MIG-1,MIG-2,MIG-3", 1, True),
        ("gpu:3", "void", 3, False),
        ("gpu:1g.10gb:7", "void", 1, True),
    ],
)
def test_shared_gpus_are_as_many_as_there_are(tmp_path: Path, conf: str, devices: str, gpus: int, shares: bool) -> None:
    """Where Slurm or the device plugin divides them, a job would be refused for the memory of another one."""
    environment = {"NODE_CONF": document(f"CPUs=2 Gres={conf}"), "NVIDIA_VISIBLE_DEVICES": devices}
    node = find_local(environment, tmp_path / "none").node
    assert (node.gpus, node.shares_gpus) == (gpus, shares)
    amd = {"NODE_CONF": document("CPUs=2 Gres=gpu:8,shard:32"), "GPU_VENDOR": "amd"}
    assert find_local(amd, tmp_path / "none").node.gpus == 0, "checks are of NVIDIA's"


def test_the_sites_settings_count_for_its_pools(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text(SETTINGS)
    local = find_local(ENVIRONMENT, path)
    assert local.node.infiniband
    assert local.node.gpus == 8
    assert local.node.local_disks == (Path("/"), Path("/mnt/scratch"))
    assert local.node.limit("disks", "used", 0.9) == 0.5
    assert local.off == {"dns"}
    assert not find_local({"POOL": "other"}, path).node.infiniband
    assert find_local({"POOL": "cpu"}, path).node.gpus == 1


def test_a_node_has_the_checks_of_its_hardware() -> None:
    assert list(find_checks(Node(name="w-0"))) == ["filesystem", "disks", "dns", "munge"]
    assert find_checks(Node(name="w-0", infiniband=True, gpus=1)) == find_checks()


def test_a_prolog_knows_its_job(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    environment = {"SLURM_JOB_ID": "17", "SLURM_JOB_GPUS": "0,2,5-7"}
    node = with_jobs(Node(name="w-0", root=tmp_path), environment)
    assert (node.job, node.job_gpus) == ("17", (0, 2, 5, 6, 7))
    assert not node.other_jobs


def test_steps_of_other_jobs_are_other_jobs_and_ended_ones_are_not(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    node = Node(name="w-0", root=tmp_path)
    add_process(proc, 10, comm="slurmd", title="/usr/sbin/slurmd")
    add_process(proc, 11, comm="slurmstepd", title="slurmstepd: [17.batch]\0", uid=0)
    add_process(proc, 12, comm="slurmstepd", title="slurmstepd: [18.0]", uid=0, state="Z")
    assert jobs_here(proc) == {"17"}
    assert with_jobs(node, {}).other_jobs
    assert not with_jobs(node, {"SLURM_JOB_ID": "17"}).other_jobs
    assert with_jobs(node, {"SLURM_JOB_ID": "16"}).other_jobs
    add_process(proc, 13, comm="slurmstepd", title="/usr/sbin/slurmstepd infinity", uid=0)
    assert with_jobs(node, {"SLURM_JOB_ID": "17"}).other_jobs, "it does not say whose it is"
