"""A small cluster as `slurmstack status` asks for it."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cli.status.read import Status, read_status
from config import load_config
from slurm.conf import config_hash, render
from tests import stacks
from tests.fakes import squeue
from tests.fakes.kubectl import FakeKubectl, listed

CONFIG = load_config(stacks.dev())
ACTIVE = {"active": config_hash(render(CONFIG)), "pending": None, "rejected": None}
BAD = {"slurm.conf": "Colour=red"}


def node(
    name: str, state: str = "idle", since: str = "Unknown", by: str = "Unknown", reason: str = "none"
) -> dict[str, str]:
    """Columns of sinfo."""
    row = {"NodeHost": name, "StateLong": state, "Timestamp": since, "User": by, "Reason": reason}
    return {**row, "Extra": "(null)"}


NODES = (node("default-0"), node("default-1"))


def pod(name: str, *, owner: str = "StatefulSet", pool: str = "", leaves: bool = False) -> dict[str, Any]:
    metadata = {
        "name": name,
        "ownerReferences": [{"kind": owner}],
        "labels": {"slurmstack/pool": pool} if pool else {},
        **({"deletionTimestamp": "2026-11-23T01:00:00Z"} if leaves else {}),
    }
    status = {"phase": "Running", "containerStatuses": [{"ready": True, "restartCount": 0}]}
    return {"kind": "Pod", "metadata": metadata, "spec": {"nodeName": "node-1"}, "status": status}


def worker(number: int, *, leaves: bool = False) -> dict[str, Any]:
    return pod(f"default-{number}", pool="default", leaves=leaves)


def pool_of(replicas: int) -> dict[str, Any]:
    return {"kind": "StatefulSet", "metadata": {"name": "default"}, "spec": {"replicas": replicas}}


CONTROLLER = pod("controller-0")
WORKERS = (worker(0), worker(1), pool_of(2))


JAIL = """Filesystem 1024-blocks Used Available Capacity Mounted on
server:/jail 1000 600 400 60% /jail

{"version": "24.11-c1500fd2bc8b"}
"""


@dataclass(frozen=True, kw_only=True)
class Cluster(FakeKubectl):
    """Answers what `read_status` asks. Its Slurm answers questions by their names: exit status, and text or rows."""

    slurm: dict[str, tuple[int, str | Sequence[dict[str, str]]]] = field(default_factory=dict)
    jail: tuple[str, str] = (JAIL, "")
    refused: str = ""
    """What kubectl says of some kinds of objects."""
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def run(self, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
        self.asked.append(arguments)
        if arguments[0] == "exec":
            marks = re.search(r"echo ([0-9a-f]{16}) end 0", arguments[-1])
            if marks is None:
                return subprocess.CompletedProcess(arguments, int(bool(self.jail[1])), *self.jail)
            questions = {
                name: line for line in arguments[-1].splitlines() for name in self.slurm if f"ask {name} " in line
            }
            said = ""
            for name, (code, told) in self.slurm.items():
                text = told if isinstance(told, str) else squeue.printed(questions[name], told)
                said += f"{marks[1]} {name} {code}\n{text}\n"
            return subprocess.CompletedProcess(arguments, 0, said + f"{marks[1]} end 0\n" if said else "", self.refused)
        done = super().run(*arguments, **more)
        return subprocess.CompletedProcess(arguments, int(bool(self.refused)), done.stdout, self.refused)


def cluster(
    *items: dict[str, Any],
    sinfo: Sequence[dict[str, str]] = NODES,
    silent: str = "",
    agent: dict[str, Any] | None = None,
    **more: Any,
) -> Cluster:
    """With these pods and other objects, whose Slurm answers so."""
    slurm = {
        "clock": (0, "1000"),
        "configuration": (0, json.dumps({**(agent or ACTIVE), "slurm_version": "24.11.5"})),
        "nodes": (1, silent) if silent else (0, sinfo),
        **({} if silent else {"queue": (0, ())}),
        "database": (0, ""),
    }
    answers = [({"pod,statefulset,service"}, listed(*items), ""), ({"configmap"}, listed({"data": BAD}), "")]
    return Cluster(answers=answers, **{"slurm": slurm, **more})


def status_of(*items: dict[str, Any], **more: Any) -> Status:
    """Of such a cluster."""
    return read_status(cluster(*items, **more), CONFIG)
