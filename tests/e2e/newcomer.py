"""`make` as a newcomer runs it, and what a cluster leaves on the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from local import processes
from local.tools import available_tools
from slurm.local_cluster import local_directory
from tests.stacks import ROOT

OF_NODES = ("/var/lib/kubelet", "/var/lib/cni", "/var/log/containers")
"""Directories of the machine that nodes need, and that a cluster makes where they are missing."""


def make(*arguments: str) -> str:
    """Run make as a user would, without a terminal; what it printed."""
    done = subprocess.run(
        ["make", *arguments, f"PYTHON={sys.executable}"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=3600,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert done.returncode == 0, f"make {arguments}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def traces() -> dict[str, set[str]]:
    """What a local cluster could leave on the machine: only what carries its names or paths, as others work here too.

    Processes of pods carry neither. They are in its cgroups, and no cgroup goes before its last process.
    """
    ours = [str(local_directory() / part) for part in ("cluster", "volumes", "removed")]

    def lines(*command: str) -> list[str]:
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=available_tools().env())
        except FileNotFoundError:  # a machine that never had a cluster may have no nft
            return []
        return done.stdout.splitlines()

    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()]
    return {
        "links": {line.split(":")[1].strip() for line in lines("ip", "-o", "link") if "slurmstack" in line},
        "routes": {line for line in lines("ip", "route") if "slurmstack" in line},
        "firewall": {line for line in lines("nft", "list", "ruleset") if "slurmstack" in line},
        "mounts": {point for point in mounts if point.startswith(tuple(ours))},
        "namespaces": {path.name for path in Path("/run/netns").glob("cni-*")},
        "cgroups": {str(path) for path in processes.subtrees()},
        "processes": {
            line for line in lines("ps", "-eo", "args") if any(path in line for path in ours) and "pytest" not in line
        },
        "directories": {path.name for path in local_directory().glob("*")} - {"cache"},
        "directories of nodes": {path for path in OF_NODES if Path(path).exists()},
    }
