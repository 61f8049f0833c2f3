"""The node's GPUs, as Slurm is to know them.

Slurm finds some itself (`AutoDetect`), others not without a vendor's library, or in a way that it then refuses. So all
are written out, in this node's own gres.conf, in place of what the cluster's tells slurmctld of nodes that are off
(slurm/elastic.py).
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from images.common.command import Runner
from images.common.gpu_jobs import GpuJobs
from images.common.slurm_node import NodeConf
from images.worker.confine import NODE, Topology, numbers

_MINORS: Final = "proc/driver/nvidia-caps/mig-minors"
"""Minor numbers in /dev/nvidia-caps: `gpu0/gi1/access 12`, `gpu0/gi1/ci0/access 13`."""

_GPU: Final = re.compile(r"GPU \d+: .*\(UUID: (GPU-[^)]+)\)")
_PART: Final = re.compile(r"\s+MIG (\S+)\s+Device\s+(\d+):")
_SECONDS: Final = 60
"""For nvidia-smi, which loads the driver's state anew for each GPU that nobody uses."""

GPUS: Final = Path("/proc/driver/nvidia/gpus")
"""One directory per GPU of the machine, from the kernel's driver."""

_AMD: Final = "0x1002"
"""AMD's number as a maker of PCI devices."""


@dataclass(frozen=True, kw_only=True)
class Device:
    """What a job gets when it asks for one GPU."""

    files: tuple[str, ...]
    cpus: frozenset[int]
    """The kernel's numbers of those that are near it; empty: unknown."""
    kind: str = ""
    """Its type in Slurm."""
    shown: str = ""
    """What exporters of NVIDIA's metrics call it."""
    model: str = ""
    """What the driver calls it; empty: nobody knows."""


def write_gres_conf(
    conf: NodeConf, vendor: str, topology: Topology | None, *, runner: Runner, log: Callable[[str], None]
) -> None:
    """What slurmd reads after the cluster's gres.conf. `topology`: the machine's; the node may not be told of it."""
    devices = find_devices(conf, vendor, runner=runner, log=log) if conf.gres else []
    lines = own_lines(conf, vendor, topology, devices) if conf.gres else []
    if lines:  # a first line with NodeName takes the place of all such lines of the cluster's file (guarded.c)
        lines[0] = f"NodeName={socket.gethostname()} {lines[0]}"
    (NODE / "gres.conf").write_text("".join(f"{line}\n" for line in lines))
    try:
        GpuJobs().start([device.shown for device in devices if device.shown])
    except OSError as error:
        log(f"nobody will be told which job has which GPU: {error}")


def find_devices(
    conf: NodeConf, vendor: str, *, runner: Runner, log: Callable[[str], None], root: Path = Path("/")
) -> list[Device]:
    """The GPUs that the pod has, in the order in which Slurm numbers them.

    It takes the types in the order in which the node offers them, and those of a type in that of the lines.
    """
    if conf.is_divided:
        devices = _divided(runner, log, root)
    else:
        devices = _typed(conf, _amd(root) if vendor == "amd" else [*_nvidia(root).values()], log)
    if not devices:
        log("no GPUs were found, and Slurm will drain this node for it")
    types = [one.type for one in conf.gpus]
    return sorted(devices, key=lambda device: types.index(device.kind) if device.kind in types else len(types))


def _typed(conf: NodeConf, devices: Sequence[Device], log: Callable[[str], None]) -> list[Device]:
    """Whole GPUs with their types.

    Of several types each GPU has the longest that is a part of its name, so that a `k20m1` is no `k20m`. Those without
    a name have what is left, in the order of the stack file. One of another name is left out: Slurm drains the node
    then, which has fewer than it is to have.
    """
    if len(conf.gpus) < 2:
        return [replace(device, kind="".join(one.type for one in conf.gpus)) for device in devices]
    left = {one.type: one.count for one in conf.gpus}
    found = []
    for device in sorted(devices, key=lambda device: not device.model):
        kinds = [kind for kind, count in left.items() if count]
        if device.model:
            kinds = sorted((kind for kind in kinds if _plain(kind) in _plain(device.model)), key=len, reverse=True)
        if kinds:
            left[kinds[0]] -= 1
            found.append(replace(device, kind=kinds[0]))
        else:
            types = ", ".join(one.type for one in conf.gpus)
            log(f"{device.files[0]} is called {device.model!r}, which is none of {types}, or is one too many")
    return found


def _plain(name: str) -> str:
    """A name without what people write in different ways."""
    return re.sub("[^a-z0-9]", "", name.lower())


def own_lines(conf: NodeConf, vendor: str, topology: Topology | None, devices: Sequence[Device]) -> list[str]:
    """The lines of this node's gres.conf."""
    flags = "amd_gpu_env" if vendor == "amd" else "nvidia_gpu_env"
    cores = [_cores(device.cpus, topology if conf.layout else None) for device in devices]
    lines = ["AutoDetect=off"]
    for device, near in zip(devices, cores, strict=True):
        kind = f" Type={device.kind}" if device.kind else ""
        key = "File" if len(device.files) == 1 else "MultipleFiles"
        # For some devices only it would be an error.
        place = f" Cores={near}" if all(cores) else ""
        lines.append(f"Name=gpu{kind} {key}={','.join(device.files)}{place} Flags={flags}")
    return lines


def _cores(cpus: frozenset[int], placed: Topology | None) -> str:
    """Slurm's numbers of the cores near a device: those of a whole socket. Empty: any.

    Of others it says that they do not match socket boundaries, and drains the node (tried with 24.11 and 26.05): where
    a socket has several NUMA nodes, a GPU is near one of them.
    """
    if placed is None:
        return ""
    size = placed.cores * placed.threads
    near = {at // size for at, number in enumerate(placed.order) if number in cpus}
    if len(near) != 1 or placed.sockets == 1:
        return ""
    first = near.pop() * placed.cores
    return f"{first}-{first + placed.cores - 1}" if placed.cores > 1 else str(first)


def _nvidia(root: Path) -> dict[int, Device]:
    """The GPUs that the pod has, by their minor numbers, in this order.

    Exporters count GPUs by their places on the bus. The driver mostly gives the files their numbers so, too; where not
    (a DGX A100), and the pod has all of the machine's GPUs, as it seems, the place counts.
    """
    found: dict[int, Device] = {}
    for path in sorted((root / GPUS.relative_to("/")).glob("*/information")):  # a directory is called as the place
        lines = (line.partition(":") for line in path.read_text(encoding="utf-8", errors="replace").splitlines())
        fields = {key.strip(): value.strip() for key, _, value in lines}
        minor = fields.get("Device Minor", "")
        if minor.isdigit() and (root / f"dev/nvidia{minor}").exists():
            near = _near(root / "sys/bus/pci/drivers/nvidia" / path.parent.name)
            found[int(minor)] = Device(files=(f"/dev/nvidia{minor}",), cpus=near, model=fields.get("Model", ""))
    places = [*found] if {*found} == set(range(len(found))) else []
    return {
        minor: replace(found[minor], shown=str(places.index(minor) if places else minor)) for minor in sorted(found)
    }


def _divided(runner: Runner, log: Callable[[str], None], root: Path) -> list[Device]:
    """Parts of NVIDIA's GPUs (MIG); none, and the reason in the log, where they cannot be found.

    Slurm finds them with NVIDIA's library and a plugin that Debian has for one version of Slurm only. Here the driver's
    own program says which there are, and the kernel by which files they are opened.
    """
    whole = _nvidia(root)
    devices = []
    try:
        lines = (root / _MINORS).read_text(encoding="ascii").splitlines()
        minors = {words[0]: int(words[1]) for line in lines if len(words := line.split()) == 2}
        for minor, profile, place in _parts(runner):
            gpu = whole.get(minor, Device(files=(), cpus=frozenset(), shown=str(minor)))
            files, shown = _files(minor, place, minors), f"{gpu.shown}.{place[0]}"
            devices.append(Device(files=files, cpus=gpu.cpus, kind=profile.replace("+", "."), shown=shown))
    except (OSError, ValueError, ET.ParseError) as error:
        log(f"the parts of the GPUs cannot be found: {error}")
        return []
    return [device for device in devices if all((root / file.lstrip("/")).exists() for file in device.files)]


def _parts(runner: Runner) -> Iterator[tuple[int, str, tuple[str, str]]]:
    """The GPU's minor number, profile, and the numbers of the two instances that make a part.

    Raises OSError where the driver's program fails, and ValueError where its two answers do not say the same.
    """
    listed, described = (runner(["nvidia-smi", *what], timeout=_SECONDS) for what in (["-L"], ["-q", "-x"]))
    for answer in (listed, described):
        if not answer.ok:
            raise OSError(answer.message)
    named, uuid = {}, ""
    for line in listed.stdout.splitlines():
        if whole := _GPU.match(line):
            uuid = whole[1]
        elif found := _PART.match(line):
            named[uuid, found[2]] = found[1]
    for gpu in ET.fromstring(described.stdout).iter("gpu"):  # noqa: S314 - the driver's own program says it
        uuid, minor = gpu.findtext("uuid", ""), gpu.findtext("minor_number", "")
        for part in gpu.iterfind("mig_devices/mig_device"):
            index = part.findtext("index", "")
            profile = named.get((uuid, index))
            place = part.findtext("gpu_instance_id", ""), part.findtext("compute_instance_id", "")
            if profile is None or not all(number.isdigit() for number in (minor, *place)):
                raise ValueError(f"nvidia-smi says nothing of part {index} of {uuid}")
            yield int(minor), profile, place


def _files(minor: int, place: tuple[str, str], minors: dict[str, int]) -> tuple[str, ...]:
    gpu, (instance, compute) = f"gpu{minor}", place
    names = (f"{gpu}/gi{instance}/access", f"{gpu}/gi{instance}/ci{compute}/access")
    missing = [name for name in names if name not in minors]
    if missing:
        raise ValueError(f"the kernel knows no {' and no '.join(missing)}")
    return (f"/dev/nvidia{minor}", *(f"/dev/nvidia-caps/nvidia-cap{minors[name]}" for name in names))


def _amd(root: Path) -> list[Device]:
    """The GPUs of AMD that the pod has. Each has two files, either of which leads to it."""
    devices = []
    for path in sorted((root / "sys/class/drm").glob("renderD*"), key=lambda path: int(path.name[len("renderD") :])):
        maker = path / "device/vendor"
        if not maker.exists() or maker.read_text(encoding="ascii").strip() != _AMD:
            continue
        names = [*sorted(card.name for card in (path / "device/drm").glob("card[0-9]*")), path.name]
        files = tuple(f"/dev/dri/{name}" for name in names if (root / "dev/dri" / name).exists())
        if f"/dev/dri/{path.name}" in files:
            devices.append(Device(files=files, cpus=_near(path / "device")))
    return devices


def _near(device: Path) -> frozenset[int]:
    """CPUs near a PCI device; none where nobody knows."""
    try:
        return frozenset(numbers((device / "local_cpulist").read_text(encoding="ascii")))
    except (OSError, ValueError):
        return frozenset()
