"""The CPUs of this worker, whether it holds jobs to what they asked for, and what slurmd has to be told for that.

It is a question of the machine, so it cannot be in the cluster's slurm.conf: that says what any worker can do, and
slurmd reads what its own node adds (NODE, by images/common/native/guarded.c).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from images.common.cgroups import CannotConfineError, Subtree, take_subtree
from images.common.command import Runner
from images.common.process import CannotGoOnError
from images.common.slurm_node import NodeConf
from images.common.slurm_records import compress
from images.worker import devices

SYSTEM: Final = Path("/sys/devices/system/cpu")

NODE: Final = Path("/run/slurmstack/node")
"""`slurm.conf` and `cgroup.conf` in here are read after the cluster's."""

_JOIN_PLUGIN: Final = "usr/lib/*/slurm-wlm/job_container_jail.so"
JOIN_LIBRARY: Final = "/usr/lib/slurmstack/join.so"

NAMES_BY_SLUID: Final = (26, 5)
"""Since this version of Slurm the cgroup of a job is not job_17, unless it is told so, but has another name of the
job's, which the epilog is not told (src/plugins/cgroup/v2/cgroup_v2.c)."""

DAEMONS: Final = "slurmd"
"""The cgroup of slurmd itself, named so that 26.05, which puts slurmd into such a one, finds itself in its place."""


@dataclass(frozen=True, kw_only=True)
class Topology:
    """A machine of equal sockets with equal cores."""

    sockets: int
    cores: int
    """Of a socket."""
    threads: int
    """Of a core."""
    order: tuple[int, ...]
    """The kernel's number of each CPU, in Slurm's order."""


def read_topology(system: Path = SYSTEM) -> Topology | None:
    """What the machine has; None where its sockets or cores differ from each other, as with efficiency cores.

    slurmd finds the sockets, cores and threads of the whole machine; a container cannot hide any of them from it. It
    binds tasks by the machine's numbers, so a node registers with the machine's topology, and the CPUs that are not the
    pod's are kept out of what jobs may have (`CpuSpecList`), by Slurm's own numbers: by sockets, cores, threads.
    """
    sockets: dict[int, dict[tuple[int, ...], list[int]]] = defaultdict(dict)
    for number in numbers((system / "online").read_text(encoding="ascii")):
        place = system / f"cpu{number}" / "topology"
        package = int((place / "physical_package_id").read_text(encoding="ascii"))
        siblings = tuple(numbers((place / "thread_siblings_list").read_text(encoding="ascii")))
        sockets[package].setdefault(siblings, []).append(number)
    # hwloc orders all of them by the lowest of their numbers.
    ordered = sorted((sorted(cores.values()) for cores in sockets.values()), key=lambda cores: cores[0][0])
    sizes = {len(cores) for cores in ordered}
    threads = {len(core) for cores in ordered for core in cores}
    if len(sizes) != 1 or len(threads) != 1:
        return None
    order = tuple(number for cores in ordered for core in cores for number in core)
    return Topology(sockets=len(ordered), cores=sizes.pop(), threads=threads.pop(), order=order)


def described(conf: NodeConf, topology: Topology | None, allowed: AbstractSet[int]) -> NodeConf:
    """The node's description with sockets, cores and threads, and without the CPUs that are not for jobs.

    `allowed`: the kernel's numbers of those that the container may use. Unchanged where that cannot be told: where the
    stack file gives the node more CPUs than there are, or a part of a core.
    """
    used = _whole_cores(topology, allowed, conf.cpus) if topology is not None else None
    if topology is None or used is None:
        return conf
    kept_out = [place for place, number in enumerate(topology.order) if number not in used]
    shape = (
        f"CPUs={len(topology.order)} Sockets={topology.sockets} CoresPerSocket={topology.cores} "
        f"ThreadsPerCore={topology.threads}"
    )
    if kept_out:
        shape += f" CpuSpecList={compress(map(str, kept_out)).strip('[]')}"
    return replace(conf, layout=shape)


def _whole_cores(topology: Topology, allowed: AbstractSet[int], wanted: int) -> frozenset[int] | None:
    """So many allowed CPUs, the first ones; None if they are not there as whole cores."""
    cores = [topology.order[at : at + topology.threads] for at in range(0, len(topology.order), topology.threads)]
    whole = [core for core in cores if allowed >= set(core)]
    count, rest = divmod(wanted, topology.threads)
    if rest or count > len(whole):
        return None
    return frozenset(number for core in whole[:count] for number in core)


def numbers(text: str) -> list[int]:
    """The numbers of a list as the kernel writes it: `0-3,8`."""
    found: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


@dataclass(frozen=True, kw_only=True)
class Confinement:
    """What was found."""

    confined: bool
    description: str
    """For people: how, or why not."""


def take_part_of_jobs(node: str, memory_mib: int, runner: Runner) -> Subtree:
    """The cgroup of all jobs, by Slurm's own name, with this memory. Raises CannotConfineError."""
    return take_subtree(DAEMONS, f"system.slice/{node}_slurmstepd.scope", memory_mib * 2**20, runner)


def find(
    wanted: str,
    node: str,
    described: NodeConf,
    runner: Runner,
    *,
    own_cpus: bool = True,
    take: Callable[[str, int, Runner], Subtree] = take_part_of_jobs,
    why_no_devices: Callable[[], str] = devices.why_not,
    directory: Path = NODE,
) -> Confinement:
    """Set up what can be. `wanted`: `auto`, `required` or `off`. `own_cpus`: no other pod uses the same ones.

    Raises CannotGoOnError where it is required and cannot be.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    (directory / "cgroup.conf").write_text("")
    if wanted == "off":
        return Confinement(confined=False, description="off, as the stack file says")
    try:
        if wanted == "required" and not own_cpus:
            raise CannotConfineError(  # noqa: TRY301
                "its CPUs are not the pod's own: it asks Kubernetes for fewer (cpu_request) than it offers to jobs"
            )
        subtree = take(node, described.memory_mib, runner)
        no_devices = why_no_devices()
        if no_devices and wanted == "required" and described.gres:
            raise CannotConfineError(no_devices)  # noqa: TRY301
    except CannotConfineError as error:
        if wanted == "required":
            raise CannotGoOnError(
                f"jobs cannot be held to what they asked for on this machine, and this pool says `confinement: "
                f"required`: {error}"
            ) from error
        return Confinement(confined=False, description=f"none: {error}")
    held = [*(["cores"] if own_cpus else []), "memory", *([] if no_devices else ["devices"])]
    notes = [*([] if own_cpus else ["its CPUs are not the pod's own"]), *([no_devices] if no_devices else [])]
    description = f"{', '.join(held)} (cgroups {subtree.how})" + "".join(f"; {note}" for note in notes)
    by_number = _version(runner) >= NAMES_BY_SLUID
    conf = _cgroup_conf(cores=own_cpus, swap=subtree.swap, devices=not no_devices, by_number=by_number)
    (directory / "cgroup.conf").write_text(conf)
    return Confinement(confined=True, description=description)


def write_slurm_conf(
    *, confined: bool, own_cpus: bool, in_jail: bool, given: Collection[str] = (), directory: Path = NODE
) -> None:
    """What slurmd reads after the cluster's slurm.conf. `given`: keys of the stack file's own, in small letters.

    Of a worker that holds nothing, too: slurmd ends of the cluster's proctrack/cgroup, and its jobs with it. The
    cluster's may become that at any time, as its pools change, and it counts at once.
    """
    plugins = [*(["task/affinity"] if own_cpus else []), *(["task/cgroup"] if confined else [])]
    settings = {
        "TaskPlugin": ",".join(plugins) or "task/none",
        "ProctrackType": "proctrack/cgroup" if confined else "proctrack/linuxproc",
        **({"JobAcctGatherType": "jobacct_gather/cgroup"} if confined else {}),
    }
    lines = [f"{key}={value}" for key, value in settings.items() if key.lower() not in given]
    if in_jail and has_join_plugin():
        lines.append("JobContainerType=job_container/jail")
    (directory / "slurm.conf").write_text("".join(f"{line}\n" for line in lines))


def has_join_plugin() -> bool:
    """Whether it is Slurm's plugin that takes slurmd into job mounts (images/spank/join.c)."""
    return bool(list(Path("/").glob(_JOIN_PLUGIN)))


def _version(runner: Runner) -> tuple[int, int]:
    """Slurm's, as `slurmd -V` says: `slurm 26.05.5`."""
    found = re.search(r"(\d+)\.(\d+)", runner(["/usr/sbin/slurmd", "-V"]).stdout)
    if found is None:
        raise CannotConfineError("slurmd does not say its version")
    return int(found[1]), int(found[2])


def _cgroup_conf(*, cores: bool, swap: bool, devices: bool, by_number: bool) -> str:
    lines = ["CgroupPlugin=cgroup/v2", "ConstrainRAMSpace=yes", *(["ConstrainCores=yes"] if cores else [])]
    # Without it the kernel would swap a job's memory out instead of ending the job, where the machine has swap.
    lines += ["ConstrainSwapSpace=yes", "AllowedSwapSpace=0"] if swap else []
    lines += ["ConstrainDevices=yes"] if devices else []
    lines += ["CgroupJobIdPaths=yes"] if by_number else []
    return "".join(f"{line}\n" for line in lines)
