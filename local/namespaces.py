"""Namespaces of the control plane and of the nodes, pinned by files below `cluster/ns`.

Each has a network namespace, so that no port of the host is taken. A node has a mount namespace too, with its own
`/run`, `/var/lib/kubelet` and `/var/lib/cni`: what kubelet, containerd and its shims keep at fixed places is the
node's alone, and all mounts of all pods vanish with the namespace. Nothing is put in `/run/netns`: `ip netns` remounts
it, which once left pods that never terminated.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from pathlib import Path

from local import paths
from local.shell import run

CONTROL = "control"
_PRIVATE_DIRECTORIES = {"/var/lib/kubelet": "kubelet", "/var/lib/cni": "cni", "/var/log/containers": "log"}
# The kubelet sets these for the whole machine, or refuses to start where it may not. A node sees files of its own
# there, which have the wanted values already: the host's settings stay as they are.
_KUBELET_SYSCTLS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}


def net_file(name: str) -> Path:
    """Give the pin of a network namespace."""
    return _directory() / f"{name}.net"


def mount_file(name: str) -> Path:
    """Give the pin of a node's mount namespace."""
    return _directory() / f"{name}.mnt"


def exists(name: str, *, with_mounts: bool) -> bool:
    """Tell whether the namespaces are there and pinned (after a reboot only empty files are left)."""
    mounted = set(mounted_below(_directory()))
    wanted = [net_file(name), mount_file(name)] if with_mounts else [net_file(name)]
    return all(str(path) in mounted for path in wanted)


def enter(name: str, *, with_mounts: bool) -> list[str]:
    """Give the start of a command line that runs in the namespaces; the process id stays the same."""
    mount = [f"--mount={mount_file(name)}"] if with_mounts else []
    return ["/usr/bin/nsenter", f"--net={net_file(name)}", *mount, "--wd=/", "--"]


def create_control() -> None:
    """Make the control plane's network namespace. What is in it comes with its cable (`network.connect_control`)."""
    remove(CONTROL)
    _prepare_directory()
    net_file(CONTROL).touch()
    run(["unshare", f"--net={net_file(CONTROL)}", "true"])


def create_node(name: str) -> None:
    """Make a node's namespaces, as empty as a machine after a reset; its directories on disk are kept."""
    remove(name)
    _prepare_directory()
    for place in _PRIVATE_DIRECTORIES:
        Path(place).mkdir(parents=True, exist_ok=True)
    net_file(name).touch()
    mount_file(name).touch()
    # One process makes both: `--wd` is left out, since the old directory is still right here.
    run(
        [
            "unshare",
            f"--net={net_file(name)}",
            f"--mount={mount_file(name)}",
            "--propagation=slave",
            "sh",
            "-ec",
            node_setup_script(paths.node(name), _directory()),
        ]
    )


def node_setup_script(node: Path, pins: Path) -> str:
    """Write the commands that give a new mount namespace its private places.

    The pins are unmounted first: a copy in here would keep the other nodes' network namespaces alive for ever.
    """
    lines = [
        f"umount -R -l '{pins}'",
        "mount --make-rshared /",
        "mount -t tmpfs -o mode=755 tmpfs /run",
        "mkdir -p /run/lock /run/sysctl",
    ]
    for place, own in _PRIVATE_DIRECTORIES.items():
        lines += [f"mkdir -p '{node}/{own}'", f"mount --bind '{node}/{own}' {place}"]
    for name, value in _KUBELET_SYSCTLS.items():
        own, place = f"/run/sysctl/{name.replace('/', '.')}", f"/proc/sys/{name}"
        lines += [f"echo {value} > {own}", f"[ ! -e {place} ] || mount --bind {own} {place}"]
    lines += ["rm -rf /var/lib/cni/*", "ip link set lo up", "echo 1 > /proc/sys/net/ipv4/ip_forward"]
    return "\n".join(lines)


def remove(name: str) -> None:
    """Let the namespaces go; all processes in them must be dead."""
    for path in (net_file(name), mount_file(name)):
        unmount_all(path)
        path.unlink(missing_ok=True)


def remove_places() -> None:
    """Remove the host's directories that nodes have mounts on, unless somebody put something in them."""
    for place in _PRIVATE_DIRECTORIES:
        with contextlib.suppress(OSError):
            Path(place).rmdir()


def _directory() -> Path:
    return paths.cluster() / "ns"


def _prepare_directory() -> None:
    """Mount the directory on itself, privately: the kernel pins a mount namespace nowhere else."""
    directory = _directory()
    directory.mkdir(parents=True, exist_ok=True)
    if str(directory) not in mounted_below(directory):
        run(["mount", "--bind", os.fspath(directory), os.fspath(directory)])
        run(["mount", "--make-private", os.fspath(directory)])


_MNT_DETACH = 2


def mount_points(mountinfo: str) -> list[str]:
    r"""List mount points in the order they were mounted; the kernel writes space, tab, newline and \ as octal."""
    rows = [line.split(" ") for line in mountinfo.splitlines()]
    return [re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), row[4]) for row in rows if len(row) > 4]


def below(points: list[str], root: Path) -> list[str]:
    """Pick those at or below `root`, the last mounted first: the order in which they can be unmounted."""
    prefix = str(root)
    return [point for point in reversed(points) if point == prefix or point.startswith(prefix + "/")]


def mounted_below(root: Path) -> list[str]:
    """List what is mounted at or below `root` now, the last first."""
    return below(mount_points(Path("/proc/self/mountinfo").read_text()), root)


def unmount_all(root: Path) -> list[str]:
    """Unmount everything at or below `root`; returns what would not go.

    Lazily, since a process of somebody else may still look at it: the name is free at once all the same.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    return [
        f"{point}: {os.strerror(ctypes.get_errno())}"
        for point in mounted_below(root)
        if libc.umount2(os.fsencode(point), _MNT_DETACH) != 0
    ]
