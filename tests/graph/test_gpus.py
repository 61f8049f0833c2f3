"""What the program registers for GPUs of each kind."""

from __future__ import annotations

from typing import Any

import pytest

from images.common.gpu_jobs import SHOWN
from tests.graph.objects import environment, mounts, recorded
from tests.graph.objects import pod as pod_of

AMD = {"count": 8, "vendor": "amd", "type": "mi300x"}
MIG = {"count": 2, "mig": {"1g.10gb": 7, "3g.40gb+me": 1}}


def pod(gpus: Any) -> dict[str, Any]:
    """A pod of a pool with these GPUs."""
    recording = recorded(worker_nodes__gpu__resources__gpus=gpus, worker_nodes__gpu__confinement="required")
    return pod_of(recording, "slurm-pool-gpu-pods")


@pytest.mark.parametrize(
    ("gpus", "extended", "told"),
    [
        (AMD, {"amd.com/gpu": "8"}, {"GPU_VENDOR": "amd"}),
        (
            {"count": 8, "type": "h100", "shard": 32},
            {"nvidia.com/gpu": "8"},
            {"NVIDIA_DRIVER_CAPABILITIES": "compute,utility,video"},
        ),
        (
            MIG,
            {"nvidia.com/mig-1g.10gb": "7", "nvidia.com/mig-3g.40gb.me": "1"},
            {"NVIDIA_DRIVER_CAPABILITIES": "compute,utility,video"},
        ),
    ],
)
def test_a_pod_asks_for_its_gpus_in_their_vendor_s_words_and_slurmd_is_told_whose_they_are(
    gpus: Any, extended: dict[str, str], told: dict[str, str]
) -> None:
    (slurmd,) = pod(gpus)["containers"]
    for part in ("requests", "limits"):
        assert {name: count for name, count in slurmd["resources"][part].items() if ".com/" in name} == extended
    found = environment(slurmd)
    assert {name: found[name] for name in ("GPU_VENDOR", "NVIDIA_DRIVER_CAPABILITIES") if name in found} == told


def test_only_where_it_is_asked_for_exporters_of_the_machine_are_shown_the_jobs() -> None:
    spec = pod({"count": 8, "job_files": True})
    (volume,) = [one for one in spec["volumes"] if "hostPath" in one]
    assert volume["hostPath"] == {"path": str(SHOWN), "type": "DirectoryOrCreate"}
    assert mounts(spec["containers"][0], volume["name"]).keys() == {str(SHOWN)}
    assert not [one for one in pod(8)["volumes"] if "hostPath" in one]
