"""Daemons that outlive the command that started them, and the records by which they are found again.

A process id alone proves nothing, it may have been given to another process: a component runs if the process of its
record is in its cgroup, which nothing else ever is. So nothing of somebody else is ever killed.

Every process of the cluster is in a cgroup of ours, so that none survives `down`: daemons in
`/slurmstack/daemons/<component>`, pods below the kubelets' `cgroupRoot`, `/slurmstack/<node>`. Both layouts are known:
one unified hierarchy (v2), and one hierarchy per controller (v1).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from local import paths

_BEGIN = 'echo $$ >"$0" && printf \'{"pid": %d}\' $$ >"$1" && shift && exec "$@" </dev/null'
"""What a daemon does first, by itself: it enters its cgroup and writes its record.

Whoever interrupts or kills us at whatever moment, no daemon runs on unknown, with its port taken.
"""


def pid_of(component: str) -> int | None:
    """Give a component's process; None where it does not run, or its record is damaged (power cut)."""
    try:
        pid = int(json.loads(_record(component).read_text())["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return pid if pid in living(f"daemons/{component}") else None


def is_running(component: str) -> bool:
    """Tell whether a component runs."""
    return pid_of(component) is not None


def started_at(component: str) -> float | None:
    """Give when a component that runs was started, in seconds since 1970."""
    with contextlib.suppress(OSError):  # it is stopped, or started anew, meanwhile
        at = _record(component).stat().st_mtime
        return at if is_running(component) else None
    return None


def log_path(component: str) -> Path:
    """Give a component's log file."""
    return paths.logs() / f"{component}.log"


def start(component: str, command: Sequence[str], env: Mapping[str, str]) -> None:
    """Start a daemon in a session of its own, its output appended to its log; returns when it is recorded."""
    log, record = log_path(component), _record(component)
    for file in (log, record):
        file.parent.mkdir(parents=True, exist_ok=True)
    kill_all(f"daemons/{component}")  # what began and was never recorded would have its port
    record.unlink(missing_ok=True)
    actions = [
        (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    defaults = [signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP]
    shell = ["/bin/sh", "-c", _BEGIN, str(_entrance(component)), str(record), *command]
    pid = os.posix_spawn(
        shell[0], shell, dict(env), file_actions=actions, setsid=True, setsigdef=defaults, setsigmask=[]
    )
    with contextlib.suppress(ChildProcessError):  # it has ended, and was waited for where that was found out
        while pid_of(component) != pid and os.waitpid(pid, os.WNOHANG)[0] == 0:
            time.sleep(0.001)


def stop(component: str) -> None:
    """Stop a component at once. Does nothing when it does not run."""
    if (pid := pid_of(component)) is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while is_running(component) and time.monotonic() < deadline:
        time.sleep(0.01)
    _record(component).unlink(missing_ok=True)


def log_tail(component: str, lines: int = 8) -> str:
    """Give the last lines of a log, for an error message."""
    try:
        text = log_path(component).read_bytes()[-20_000:].decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def _record(component: str) -> Path:
    return paths.run() / f"{component}.json"


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


def _entrance(component: str) -> Path:
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


def _processes_in(*relative: str) -> set[int]:
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
    for pid in _processes_in(*relative):
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        with contextlib.suppress(OSError):
            if not _has_ended(Path(f"/proc/{pid}/stat").read_text()):
                found.add(pid)
    return found


def remove_cgroups(*relative: str) -> list[str]:
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
