"""A container's configuration for runc, as containerd and kubelet write it for a container of a Kubernetes pod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from config.base import parse_bytes
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
_SHARED = {"network": "net", "ipc": "ipc", "uts": "uts"}


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


def image_of(container: Mapping[str, Any]) -> str:
    """The name of its image in the machine: `worker-24.11`."""
    role, _, tag = container["image"].rpartition("/")[2].partition(":")
    return f"{role}-{tag.partition('-')[0]}"


def memory_of(container: Mapping[str, Any]) -> int | None:
    """The limit in bytes; None: whatever there is."""
    limit = container.get("resources", {}).get("limits", {}).get("memory")
    return None if limit is None else parse_bytes(limit)


def config(
    container: Mapping[str, Any], sandbox: Sandbox, root: str, *,
    volumes: Mapping[str, str], env: Mapping[str, str], writable_cgroups: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """The content of config.json for a container of a pod's specification.

    `volumes`: name -> directory of the machine. `writable_cgroups`: as containerd's `cgroup_writable` has it.
    """
    context = container.get("securityContext", {})
    capabilities = context.get("capabilities", {}).get("add", ())
    names = [f"CAP_{name}" for name in capabilities]
    variables = {"PATH": PATH, "HOSTNAME": sandbox.hostname, "HOME": "/root", **env}
    return {
        "ociVersion": "1.0.2",
        "root": {"path": root, "readonly": context.get("readOnlyRootFilesystem", False)},
        "process": {
            "cwd": "/",
            "args": list(container["command"]),
            "env": [f"{key}={value}" for key, value in variables.items()],
            "user": {"uid": context.get("runAsUser", 0), "gid": context.get("runAsGroup", 0)},
            # Neither inheritable nor ambient ones, as containerd since 1.6.2.
            "capabilities": {"bounding": names, "permitted": names, "effective": names},
            "noNewPrivileges": not context.get("allowPrivilegeEscalation", True),
            "rlimits": [{"type": "RLIMIT_NOFILE", "soft": FILES, "hard": FILES}],
            "oomScoreAdj": _oom_score(memory_of(container), sandbox),
        },
        "mounts": [
            *_system_mounts("rw" if writable_cgroups else "ro"),
            *_pod_mounts(container, sandbox, volumes),
        ],
        "linux": {
            "namespaces": [
                {"type": "pid"},
                {"type": "mount"},
                {"type": "cgroup"},
                *({"type": kind, "path": f"/proc/{sandbox.pid}/ns/{file}"} for kind, file in _SHARED.items()),
            ],
            "cgroupsPath": f"/{sandbox.cgroup}/{sandbox.hostname}-{container['name']}",
            "resources": _resources(container),
            "maskedPaths": list(_MASKED),
            "readonlyPaths": list(_READ_ONLY),
            "seccomp": default_profile(capabilities),
        },
    }


def _oom_score(limit: int | None, sandbox: Sandbox) -> int:
    """As kubelet works it out for a pod that asks for less CPU than it may use: the more it asked for, the later."""
    return 1000 if limit is None else min(999, max(3, 1000 - 1000 * (limit >> 20) // sandbox.machine_mib))


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


def _mount(target: str, kind: str, *options: str) -> dict[str, Any]:
    return {"destination": target, "type": kind, "source": kind, "options": list(options)}


def _pod_mounts(container: Mapping[str, Any], sandbox: Sandbox, volumes: Mapping[str, str]) -> list[dict[str, Any]]:
    """Files that kubelet makes for the pod, its shared memory unless it brings its own, and its volumes."""
    files = {f"/etc/{name}": f"{sandbox.directory}/{name}" for name in ("hosts", "hostname", "resolv.conf")}
    files |= {
        "/dev/shm": f"{sandbox.directory}/shm",
        "/dev/termination-log": f"{sandbox.directory}/log-{container['name']}/termination",
    }
    mounts = container.get("volumeMounts", ())
    own = {one["mountPath"] for one in mounts}
    return [_bind(source, target) for target, source in files.items() if target not in own] + [
        _bind(volumes[one["name"]], one["mountPath"], "ro" if one.get("readOnly") else "rw") for one in mounts
    ]


def _bind(source: str, target: str, how: str = "rw") -> dict[str, Any]:
    return {"destination": target, "type": "bind", "source": source, "options": ["rbind", "rprivate", how]}


def _resources(container: Mapping[str, Any]) -> dict[str, Any]:
    request = container.get("resources", {}).get("requests", {}).get("cpu", "100m")
    cpus = float(request.removesuffix("m")) / 1000 if request.endswith("m") else float(request)
    limit = memory_of(container)
    return {
        "devices": [{"allow": False, "access": "rwm"}],
        "cpu": {"shares": max(2, int(cpus * 1024)), "quota": 0, "period": 100_000},
        # All processes are killed when one has to be, as kubelet wants it on machines with control groups v2.
        "unified": {"memory.oom.group": "1"},
        # Swap counts in: none.
        **({} if limit is None else {"memory": {"limit": limit, "swap": limit}}),
    }
