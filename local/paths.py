"""Directories of the local cluster; all below one root, so that what is ours can be told by its path alone."""

from __future__ import annotations

import os
from pathlib import Path

from local.errors import LocalError

SOURCES = Path(__file__).resolve().parent
"""The package itself: the Go modules and templates that builds start from."""


DEFAULT_ROOT = Path("/var/lib/slurmstack")


def root() -> Path:
    """`$SLURMSTACK_LOCAL_DIR`, or `/var/lib/slurmstack`; read at each call, so that tests can point it elsewhere."""
    return Path(os.environ.get("SLURMSTACK_LOCAL_DIR") or DEFAULT_ROOT).resolve()


def close() -> None:
    """Make our directory, and let nobody but its owner in.

    Images and the jail have programs with setuid bits, and the jail has files of all users: on this machine, whoever
    has an account could use them. `LocalError` where it is open and has things in it that are not ours.
    """
    directory = root()
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not directory.stat().st_mode & 0o077:
        return
    ours = {cache().name, cluster().name, volumes().name, removed().name}
    others = sorted({path.name for path in directory.iterdir()} - ours)
    if others:
        msg = f"{directory} is open to all users of this machine, and has {others[0]} in it, which is not ours"
        raise LocalError(msg, f"chmod 700 {directory}, or let SLURMSTACK_LOCAL_DIR name a directory of its own")
    directory.chmod(0o700)


def cache() -> Path:
    """Give what survives `down`, each piece in a directory named by its inputs."""
    return root() / "cache"


def cache_tools() -> Path:
    """Give unpacked Debian packages, one tree per key."""
    return cache() / "tools"


def cache_bin() -> Path:
    """Give Go programs, one directory per module and key."""
    return cache() / "bin"


def cache_images() -> Path:
    """Give image archives and root file systems."""
    return cache() / "images"


def cluster() -> Path:
    """Give everything of the running cluster; removed by `down`."""
    return root() / "cluster"


def volumes() -> Path:
    """Give the data of hostPath volumes (the jail, the controller's state); removed by `down`."""
    return root() / "volumes"


def removed() -> Path:
    """Give where `down` moves both before it deletes them: while it exists, a removal is under way."""
    return root() / "removed"


def pki() -> Path:
    """Give certificates, keys and the kubeconfigs made from them."""
    return cluster() / "pki"


def kubeconfig() -> Path:
    """Give the administrator's kubeconfig, context `slurmstack-local`."""
    return cluster() / "kubeconfig"


def logs() -> Path:
    """Give one file per component."""
    return cluster() / "log"


def run() -> Path:
    """Give the records of started processes."""
    return cluster() / "run"


def node(name: str) -> Path:
    """Give all state of one node: containerd, kubelet, CNI."""
    return cluster() / "nodes" / name
