"""What is known about the node on which a program of this folder runs.

slurmd gives the programs that it starts hardly any environment, so the pod's is read from its first process. What a
site sets comes from a file, which Kubernetes renews in running pods:

    {"thresholds": {"disks": {"fail_percent": 97}}, "disabled": ["dns"], "report_only": ["gpu-free"],
     "programs": {"nhc": {"command": ["/usr/sbin/nhc"], "seconds": 20, "fault": "node"}},
     "pools": {"h100": {"infiniband": true, "local_disks": ["/", "/mnt/scratch"]}}}
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from images.common.command import NO_PROGRAM, NOT_STARTED, Runner
from images.common.health.contract import Check, Node, Result, fail, not_checked, ok
from images.common.slurm_node import NodeConf
from images.health.proc import jobs_here

SETTINGS: Final = Path("/config/health/settings.json")
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/nvidia/bin"
_LONGEST_LINE: Final = 200
"""Characters of what a site's check says: a comment of a node has room for several checks."""


@dataclass(frozen=True, kw_only=True)
class Local:
    """This node, and the site's settings for its checks."""

    node: Node
    off: frozenset[str] = frozenset()
    """Checks that the site does not want."""
    report_only: frozenset[str] = frozenset()
    """Checks whose failure is told and refuses no job."""
    programs: Mapping[str, Check] = field(default_factory=dict)
    """The site's own checks."""


def pod_environment(first: Path = Path("/proc/1/environ")) -> dict[str, str]:
    """The environment of the pod's first process, under the one of this program."""
    try:
        pairs = [part.partition("=") for part in first.read_text(encoding="utf-8", errors="replace").split("\0")]
    except OSError:
        pairs = []
    return {name: value for name, _, value in pairs if name} | dict(os.environ)


def prepare_environment() -> None:
    """What all tools need: a search path, which slurmd does not give, and messages that are the same everywhere."""
    os.environ.setdefault("PATH", PATH)
    os.environ["LC_ALL"] = "C"


def find_local(environment: Mapping[str, str], settings: Path = SETTINGS) -> Local:
    """This node."""
    text = environment.get("NODE_CONF")
    conf = NodeConf.parse(text) if text else NodeConf(cpus=0, memory_mib=0, features=())
    jail = environment.get("JAIL", "")
    # What is asked here are NVIDIA's programs; and divided GPUs are offered by their parts.
    offered = 1 if conf.is_divided else sum(one.count for one in conf.gpus)
    promised = 0 if environment.get("GPU_VENDOR") else offered
    # Kubernetes' device plugin names each GPU that it has given to the pod: `GPU-8dd...,GPU-f21...`. One that is given
    # out several times has the same name each time; of divided ones it names the parts, which may all be of one GPU.
    names = {name.strip() for name in environment.get("NVIDIA_VISIBLE_DEVICES", "").split(",")}
    whole, parts = sum(name.startswith("GPU-") for name in names), any(name.startswith("MIG-") for name in names)
    shares = parts or 0 < whole < promised
    node = Node(
        name=environment.get("SLURMD_NODENAME") or os.uname().nodename,
        gpus=whole + parts if shares else promised,
        shares_gpus=shares or conf.is_divided or conf.has_shards,
        jail=Path(jail) if jail else None,
        homes=Path(jail, "home") if jail and environment.get("HOMES") else None,
    )
    # Kubernetes mounts it; without health there is none.
    given = json.loads(settings.read_text(encoding="utf-8")) if settings.exists() else {}
    return _with_settings(node, environment.get("POOL", ""), given)


def _with_settings(node: Node, pool: str, settings: Mapping[str, Any]) -> Local:
    of_pool = settings.get("pools", {}).get(pool, {})
    node = replace(
        node,
        gpus=of_pool.get("gpus", node.gpus),  # written by hand: to try the checks on machines that have none
        infiniband=of_pool.get("infiniband", node.infiniband),
        local_disks=tuple(Path(path) for path in of_pool.get("local_disks", node.local_disks)),
        limits=settings.get("thresholds", {}),
    )
    return Local(
        node=node,
        off=frozenset(settings.get("disabled", ())),
        report_only=frozenset(settings.get("report_only", ())),
        programs={name: program_check(name, program) for name, program in settings.get("programs", {}).items()},
    )


def program_check(name: str, program: Mapping[str, Any]) -> Check:
    """A site's own check: a program in the jail, whose exit status says how it is and whose first line says what.

    As with LBNL's NHC, Slurm's prologs and most monitoring: 0 is well, anything else is a fault. A program that cannot
    be started, is killed or does not end in time says nothing about the node. It has no capabilities: users with
    `sudo: true` are root in the jail, and may change what is run there.
    """
    command, seconds, fault = program["command"], program["seconds"], program["fault"]

    def run(node: Node, _runner: Runner) -> Result:
        from images.common.boundary import keep_only  # noqa: PLC0415  where a site has none nothing needs it

        try:  # the process is the check's own (runner.py), its standard input the pod's /dev/null
            if node.jail is not None:
                os.chroot(node.jail)
            os.chdir("/")
            keep_only()
            done = subprocess.run(command, capture_output=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            return not_checked(f"{command[0]} did not end in {seconds:g} s")
        except OSError as error:
            return not_checked(f"{command[0]}: {error.strerror}")
        lines = (line.strip() for line in b"\n".join((done.stdout, done.stderr)).decode(errors="replace").splitlines())
        first, code = next(filter(None, lines), "")[:_LONGEST_LINE], done.returncode
        if code in {NOT_STARTED, NO_PROGRAM} or code < 0:
            return not_checked(first or f"{command[0]} was ended by signal {-code}")
        return ok() if code == 0 else fail(fault, first or f"{command[0]} ended with {code}")

    return Check(
        name=name,
        run=run,
        hardware="gpu" if program.get("gpus") else "any",
        seconds=seconds + 1,
    )


def with_jobs(node: Node, environment: Mapping[str, str]) -> Node:
    """The node with its jobs; `environment`: of a prolog or epilog, which has a job of its own."""
    job = environment.get("SLURM_JOB_ID", "")
    gpus: list[int] = []
    for match in re.finditer(r"(\d+)(?:-(\d+))?", environment.get("SLURM_JOB_GPUS", "")):
        gpus += range(int(match[1]), int(match[2] or match[1]) + 1)
    return replace(
        node,
        job=job,
        job_gpus=tuple(gpus),
        other_jobs=bool(jobs_here(node.root / "proc") - {job}),
    )
