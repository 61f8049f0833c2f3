"""What the program registers for GPUs of each kind."""

from __future__ import annotations

from typing import Any

import pytest

from cli.program.values import reveal
from images.common.gpu_jobs import SHOWN
from tests import stacks
from tests.recordings import record
from tests.stacks import with_change


def pod(gpus: Any) -> dict[str, Any]:
    """A pod of a pool with these GPUs."""
    sections = with_change(stacks.existing(), "worker_nodes.gpu.resources.gpus", gpus)
    sections = with_change(sections, "worker_nodes.gpu.confinement", "required")
    (pool,) = [item for item in record(sections, stack="prod") if item.name == "slurm-pool-gpu-pods"]
    return dict(reveal(pool.inputs)["spec"]["template"]["spec"])


def slurmd(gpus: Any) -> dict[str, Any]:
    """Its container."""
    return dict(pod(gpus)["containers"][0])


@pytest.mark.parametrize(
    ("gpus", "extended"),
    [
        ({"count": 8, "vendor": "amd", "type": "mi300x"}, {"amd.com/gpu": "8"}),
        ({"count": 8, "type": "h100", "shard": 32}, {"nvidia.com/gpu": "8"}),
        (
            {"count": 2, "mig": {"1g.10gb": 7, "3g.40gb+me": 1}},
            {"nvidia.com/mig-1g.10gb": "7", "nvidia.com/mig-3g.40gb.me": "1"},
        ),
    ],
)
def test_a_pod_asks_for_its_gpus_in_their_vendor_s_words(gpus: Any, extended: dict[str, str]) -> None:
    resources = slurmd(gpus)["resources"]
    for part in ("requests", "limits"):
        assert {name: count for name, count in resources[part].items() if ".com/" in name} == extended


@pytest.mark.parametrize(
    ("gpus", "given", "others"),
    [
        ({"count": 8, "vendor": "amd"}, {"GPU_VENDOR": "amd"}, "NVIDIA_DRIVER_CAPABILITIES"),
        (
            {"count": 1, "mig": {"1g.10gb": 7}},
            {"NVIDIA_DRIVER_CAPABILITIES": "compute,utility,video"},
            "GPU_VENDOR",
        ),
    ],
)
def test_slurmd_s_start_is_told_whose_gpus_they_are(gpus: Any, given: dict[str, str], others: str) -> None:
    env = {variable["name"]: variable.get("value") for variable in slurmd(gpus)["env"]}
    assert given.items() <= env.items()
    assert others not in env


@pytest.mark.parametrize(
    ("gpus", "reads"), [({"count": 8, "vendor": "amd"}, False), ({"count": 1, "mig": {"1g.10gb": 7}}, True), (8, True)]
)
def test_the_kernel_s_log_is_read_for_nvidia_s_gpus_only(gpus: Any, reads: bool) -> None:
    assert ("SYSLOG" in slurmd(gpus)["securityContext"]["capabilities"]["add"]) is reads


def test_only_where_it_is_asked_for_exporters_of_the_machine_are_shown_the_jobs() -> None:
    spec = pod({"count": 8, "job_files": True})
    (volume,) = [one for one in spec["volumes"] if "hostPath" in one]
    assert volume["hostPath"] == {"path": str(SHOWN), "type": "DirectoryOrCreate"}
    (mount,) = [one for one in spec["containers"][0]["volumeMounts"] if one["name"] == volume["name"]]
    assert mount["mountPath"] == str(SHOWN)
    assert not [one for one in pod(8)["volumes"] if "hostPath" in one]


@pytest.mark.parametrize(
    ("gpus", "strategy"), [({"mig": {"1g.10gb": 56}}, {"strategy": "mixed"}), ({"shard": 8}, None)]
)
def test_nvidia_s_operator_offers_parts_by_their_profiles(gpus: Any, strategy: Any) -> None:
    sections = with_change(stacks.nebius_minimum(), "cloud.gpu_stack", "operators")
    sections = with_change(sections, "worker_nodes.default.resources", {"gpus": gpus})
    sections = with_change(sections, "worker_nodes.default.confinement", "required")
    (release,) = [item for item in record(sections, stack="prod") if item.name.endswith("-gpu-operator")]
    assert reveal(release.inputs)["values"].get("mig") == strategy
