"""A container's configuration for runc, as containerd and kubelet write it for a container of a Kubernetes pod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.machine.seccomp import default_profile

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

FILES = 1_048_576
"""Open files that a process may have: the limit of containerd's own service, which containers inherit."""

_MASKED = (
    "/proc/asound", "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
    "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
)  # fmt: skip
_READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")

_SAFE = ("nosuid", "noexec", "nodev")
_MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class Bind:
    """A directory or file of the machine in a container."""

    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True, kw_only=True)
class ContainerSpec:
    """What a pod says of one of its containers."""

    name: str
    image: str
    """One of the machine's images."""
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    capabilities: tuple[str, ...] = ()
    """All others are dropped."""
    binds: tuple[Bind, ...] = ()
    memory_mib: int | None = None
    """Its limit, which is what it asks for, too; None: whatever there is."""
    cpus: float = 0.1
    """What it asks for; nothing limits it."""
    cpuset: str = ""
    """CPUs that it has for itself, `2-3`, as by the static policy of kubelet's CPU manager."""
    read_only: bool = False
    """Its root file system."""
    no_new_privileges: bool = False
    user: tuple[int, int] = (0, 0)
    seccomp: bool = True
    """Containerd's default profile; else none."""
    writable_cgroups: bool = False
    """As containerd's `cgroup_writable` and CRI-O's annotation have it."""


@dataclass(frozen=True, kw_only=True)
class Sandbox:
    """What the containers of a pod share."""

    hostname: str
    pid: int
    """A process in the pod's namespaces of network, IPC and host name."""
    cgroup: str
    """Below `/sys/fs/cgroup`."""
    directory: str
    """In the machine, with the pod's `shm`, `hosts`, `hostname` and `resolv.conf`."""
    machine_mib: int


def config(spec: ContainerSpec, sandbox: Sandbox, root: str, identifier: str) -> dict[str, Any]:
    """The content of config.json."""
    names = [f"CAP_{name}" for name in spec.capabilities]
    env = {"PATH": PATH, "HOSTNAME": sandbox.hostname, "HOME": "/root", **spec.env}
    return {
        "ociVersion": "1.0.2",
        "root": {"path": root, "readonly": spec.read_only},
        "process": {
            "cwd": "/",
            "args": list(spec.command),
            "env": [f"{key}={value}" for key, value in env.items()],
            "user": {"uid": spec.user[0], "gid": spec.user[1]},
            # Neither inheritable nor ambient ones, as containerd since 1.6.2.
            "capabilities": {"bounding": names, "permitted": names, "effective": names},
            "noNewPrivileges": spec.no_new_privileges,
            "rlimits": [{"type": "RLIMIT_NOFILE", "soft": FILES, "hard": FILES}],
            "oomScoreAdj": _oom_score(spec, sandbox),
        },
        "mounts": [
            *_system_mounts("rw" if spec.writable_cgroups else "ro"),
            *_pod_mounts(spec, sandbox),
            *(_bind(bind) for bind in spec.binds),
        ],
        "linux": {
            "namespaces": [
                {"type": "pid"},
                {"type": "mount"},
                {"type": "cgroup"},
                *({"type": kind, "path": f"/proc/{sandbox.pid}/ns/{file}"} for kind, file in _SHARED.items()),
            ],
            "cgroupsPath": f"/{sandbox.cgroup}/{identifier}",
            "resources": _resources(spec),
            "maskedPaths": list(_MASKED),
            "readonlyPaths": list(_READ_ONLY),
            **({"seccomp": default_profile(spec.capabilities)} if spec.seccomp else {}),
        },
    }


_SHARED = {"network": "net", "ipc": "ipc", "uts": "uts"}


def _oom_score(spec: ContainerSpec, sandbox: Sandbox) -> int:
    """As kubelet works it out for a pod that asks for less CPU than it may use: the more it asked for, the later."""
    if spec.memory_mib is None:
        return 1000
    return min(999, max(3, 1000 - 1000 * spec.memory_mib // sandbox.machine_mib))


def _system_mounts(cgroups: str) -> list[dict[str, Any]]:
    pts = ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]
    return [
        _mount("/proc", "proc", *_SAFE),
        _mount("/dev", "tmpfs", "nosuid", "strictatime", "mode=755", "size=65536k"),
        _mount("/dev/pts", "devpts", *pts),
        _mount("/dev/mqueue", "mqueue", *_SAFE),
        _mount("/sys", "sysfs", *_SAFE, "ro"),
        _mount("/sys/fs/cgroup", "cgroup", *_SAFE, "relatime", cgroups),
    ]


def _pod_mounts(spec: ContainerSpec, sandbox: Sandbox) -> list[dict[str, Any]]:
    """Files that kubelet makes for the pod, and the sandbox's shared memory, where the pod brings none of its own."""
    own = {bind.target for bind in spec.binds}
    files = {f"/etc/{name}": f"{sandbox.directory}/{name}" for name in ("hosts", "hostname", "resolv.conf")}
    files |= {
        "/dev/shm": f"{sandbox.directory}/shm",
        "/dev/termination-log": f"{sandbox.directory}/log-{spec.name}/termination",
    }
    return [_bind(Bind(source=source, target=target)) for target, source in files.items() if target not in own]


def _bind(bind: Bind) -> dict[str, Any]:
    options = ["rbind", "rprivate", "ro" if bind.read_only else "rw"]
    return {"destination": bind.target, "type": "bind", "source": bind.source, "options": options}


def _mount(target: str, kind: str, *options: str) -> dict[str, Any]:
    return {"destination": target, "type": kind, "source": kind, "options": list(options)}


def _resources(spec: ContainerSpec) -> dict[str, Any]:
    shares = max(2, int(spec.cpus * 1024))
    cpu = {"shares": shares, "quota": 0, "period": 100_000, **({"cpus": spec.cpuset} if spec.cpuset else {})}
    found: dict[str, Any] = {"devices": [{"allow": False, "access": "rwm"}], "cpu": cpu}
    # All processes are killed when one has to be, as kubelet wants it on machines with control groups v2.
    found["unified"] = {"memory.oom.group": "1"}
    if spec.memory_mib is not None:
        limit = spec.memory_mib * _MIB
        # Swap counts in: none.
        found["memory"] = {"limit": limit, "swap": limit}
    return found
