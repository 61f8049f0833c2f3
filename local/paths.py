"""Directories of the local cluster; all below one root, so that what is ours can be told by its path alone."""

from __future__ import annotations

import os
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
"""The package itself: the Go modules and templates that builds start from."""


DEFAULT_ROOT = Path("/var/lib/slurmstack")


def root() -> Path:
    """`$SLURMSTACK_LOCAL_DIR`, or `/var/lib/slurmstack`; read at each call, so that tests can point it elsewhere."""
    return Path(os.environ.get("SLURMSTACK_LOCAL_DIR") or DEFAULT_ROOT).resolve()


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
