"""Our cgroups: every process of the cluster is in one, so that none survives `down`.

Daemons are in `/slurmstack/daemons/<component>`; pods below the kubelets' `cgroupRoot`, `/slurmstack/<node>`. Both
layouts are known: one unified hierarchy (v2), and one hierarchy per controller (v1).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import time
from pathlib import Path

from local import paths

_MOUNT = Path("/sys/fs/cgroup")
_TRACKING = ("pids", "freezer", "systemd")  # v1: the hierarchy in which daemons are put, the first that exists
_V2_CONTROLLERS = ("cpu", "cpuset", "io", "memory", "pids", "hugetlb")


def root_name() -> str:
    """Give the name of our top cgroup; another slurmstack directory has another one, and never touches this."""
    if paths.root() == paths.DEFAULT_ROOT:
        return "slurmstack"
    return "slurmstack-" + hashlib.sha256(str(paths.root()).encode()).hexdigest()[:8]


def node_cgroup(node: str) -> str:
    """Give the kubelet's `cgroupRoot`."""
    return f"/{root_name()}/{node}"


def is_v2() -> bool:
    """Tell whether the machine has the unified hierarchy only."""
    return (_MOUNT / "cgroup.controllers").exists()


def hierarchies() -> list[Path]:
    """List the mount points of all cgroup hierarchies, by their real paths."""
    if is_v2():
        return [_MOUNT]
    return sorted({path.resolve() for path in _MOUNT.iterdir() if (path / "cgroup.procs").exists()})


def prepare_node(node: str) -> None:
    """Make the node's root cgroup in every hierarchy; the kubelet wants to find it."""
    for hierarchy in hierarchies():
        if hierarchy.name == "unified":
            continue
        path = hierarchy / root_name() / node
        path.mkdir(parents=True, exist_ok=True)
        if is_v2():
            for parent in (hierarchy, hierarchy / root_name()):
                _enable_controllers(parent)


def _enable_controllers(parent: Path) -> None:
    available = (parent / "cgroup.controllers").read_text().split()
    for controller in _V2_CONTROLLERS:
        if controller in available:
            with contextlib.suppress(OSError):
                (parent / "cgroup.subtree_control").write_text(f"+{controller}")


def entrance(component: str) -> Path:
    """Give the file that a daemon enters its own cgroup by. What it starts is born there, containerd's shims say."""
    path = _tracking_hierarchy() / root_name() / "daemons" / component
    path.mkdir(parents=True, exist_ok=True)
    return path / "cgroup.procs"


def _tracking_hierarchy() -> Path:
    if is_v2():
        return _MOUNT
    return next((_MOUNT / name for name in _TRACKING if (_MOUNT / name / "cgroup.procs").exists()), hierarchies()[0])


def subtrees(*relative: str) -> list[Path]:
    """List the directories of these cgroups in all hierarchies; without arguments, everything of ours."""
    wanted = relative or ("",)
    found = [hierarchy / root_name() / part for hierarchy in hierarchies() for part in wanted]
    return [path for path in found if path.is_dir()]


def processes(*relative: str) -> set[int]:
    """List the processes in these cgroups and below."""
    pids: set[int] = set()
    for top in subtrees(*relative):
        for directory, _, _ in os.walk(top):
            with contextlib.suppress(OSError):
                pids.update(map(int, (Path(directory) / "cgroup.procs").read_text().split()))
    return pids - {0, os.getpid()}


def kill_all(*relative: str, timeout_s: float = 60) -> set[int]:
    """Kill until nothing is left, since processes may be born meanwhile; returns what would not die.

    A database that waits for a busy disk dies when the disk has answered.
    """
    deadline = time.monotonic() + timeout_s
    while (pids := living(*relative)) and time.monotonic() < deadline:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    return pids


def living(*relative: str) -> set[int]:
    """List the processes in these cgroups and below, without those that have ended.

    Who is dead is waited for only by a parent that may be us.
    """
    found = set()
    for pid in processes(*relative):
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        with contextlib.suppress(OSError):
            if not _has_ended(Path(f"/proc/{pid}/stat").read_text()):
                found.add(pid)
    return found


def remove(*relative: str) -> list[str]:
    """Remove the directories, the deepest first; returns those that would not go."""
    failed = []
    for top in subtrees(*relative):
        for directory, _, _ in os.walk(top, topdown=False):
            for attempt in range(20):
                try:
                    Path(directory).rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError as error:
                    # The kernel lets go of a dead process's cgroup a moment later.
                    if attempt == 19:
                        failed.append(f"{directory}: {error.strerror}")
                    time.sleep(0.02)
    return failed


def _has_ended(stat: str) -> bool:
    """Tell whether nothing is left but an entry for its parent.

    A zombie with other threads is still ending: its files and ports are taken until the last of them has gone.
    """
    fields = stat.rpartition(")")[2].split()  # the name may itself have spaces and parentheses
    return fields[0] == "X" or (fields[0] == "Z" and int(fields[17]) <= 1)
