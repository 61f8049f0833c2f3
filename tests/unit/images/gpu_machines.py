"""Machines with GPUs, as the kernel shows them, in a directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from images.common.command import Result
from images.worker.confine import Topology
from tests.fakes.commands import FakeRunner

TWO_SOCKETS = Topology(sockets=2, cores=2, threads=2, order=(0, 4, 2, 6, 1, 5, 3, 7))
"""CPUs 0, 2, 4 and 6 are in the first socket, the others in the second."""
REGISTERED = "CPUs=8 Sockets=2 CoresPerSocket=2 ThreadsPerCore=2"
"""A node that is described with them."""

LISTED = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-aa)
  MIG 3g.40gb     Device  0: (UUID: MIG-a0)
  MIG 1g.10gb+me  Device  1: (UUID: MIG-a1)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-bb)
  MIG 1g.10gb     Device  0: (UUID: MIG-b0)
"""
"""What `nvidia-smi -L` prints of two divided GPUs, and below what `nvidia-smi -q -x` does, as far as it is read."""


def described(parts: Mapping[str, tuple[int, list[tuple[int, int]]]]) -> str:
    """GPU -> its minor number, and the two instances of each of its parts."""
    gpus = ""
    for uuid, (minor, instances) in parts.items():
        devices = "".join(
            f"<mig_device><index>{index}</index><gpu_instance_id>{gi}</gpu_instance_id>"
            f"<compute_instance_id>{ci}</compute_instance_id></mig_device>"
            for index, (gi, ci) in enumerate(instances)
        )
        gpus += f'<gpu id="00000000:0{minor}:00.0"><mig_devices>{devices or "None"}</mig_devices><uuid>{uuid}</uuid>'
        gpus += f"<minor_number>{minor}</minor_number></gpu>"
    header = '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n'
    return f"{header}<nvidia_smi_log>{gpus}</nvidia_smi_log>\n"


DESCRIBED = described({"GPU-aa": (0, [(1, 0), (9, 0)]), "GPU-bb": (1, [(7, 0)])})
MINORS = """\
config 1
gpu0/gi1/access 12
gpu0/gi1/ci0/access 13
gpu0/gi9/access 84
gpu0/gi9/ci0/access 85
gpu1/gi7/access 201
gpu1/gi7/ci0/access 202
"""


def nvidia(root: Path, *near: str) -> Path:
    """A machine with a GPU for each list of CPUs."""
    for minor, cpus in enumerate(near):
        bus = f"0000:0{minor}:00.0"
        write(
            root / f"proc/driver/nvidia/gpus/{bus}/information", f"Model: \t\t NVIDIA H100\nDevice Minor: \t {minor}\n"
        )
        write(root / f"sys/bus/pci/drivers/nvidia/{bus}/local_cpulist", f"{cpus}\n")
        write(root / f"dev/nvidia{minor}", "")
    return root


def divided(root: Path) -> Path:
    """The same with two GPUs, one near each socket, of which the pod has three parts."""
    nvidia(root, "0,2,4,6", "1,3,5,7")
    write(root / "proc/driver/nvidia-caps/mig-minors", MINORS)
    for cap in (12, 13, 84, 85, 201, 202):
        write(root / f"dev/nvidia-caps/nvidia-cap{cap}", "")
    return root


def amd(root: Path, *near: str) -> Path:
    """A machine with AMD's GPUs behind a graphics chip of another maker, which has the first numbers."""
    for number, (maker, cpus) in enumerate((("0x1a03", "0-7"), *(("0x1002", cpus) for cpus in near))):
        device = root / f"sys/class/drm/renderD{128 + number}/device"
        write(device / "vendor", f"{maker}\n")
        write(device / "local_cpulist", f"{cpus}\n")
        write(device / f"drm/card{number}", "")
        write(root / f"dev/dri/renderD{128 + number}", "")
        write(root / f"dev/dri/card{number}", "")
    return root


def runner(listed: str = LISTED, xml: str = DESCRIBED) -> FakeRunner:
    """`nvidia-smi`."""
    return FakeRunner({"nvidia-smi -L": Result(code=0, stdout=listed), "nvidia-smi -q": Result(code=0, stdout=xml)})


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
