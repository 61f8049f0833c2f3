"""A worker's node: what the stack file gives it (NODE_CONF), and its record, changed with Slurm's own commands."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from images.common.command import NO_PROGRAM, TIMED_OUT, Result, Runner, run
from images.common.slurm_records import NodeRecord, NotUnderstoodError, entries_in, expand, node_records

_PROFILE: Final = re.compile(r"[1-7]g\.\d+gb")
"""How the type of a part of a GPU (MIG) begins."""

LEAVING_REASON: Final = "slurmstack: pod leaving"
"""Reason of the drain that a leaving pod sets on itself. Any other is an administrator's or a health check's."""

ROLLS: Final = f"{LEAVING_REASON} for a new one"
"""Reason of the drain of a node whose pod gets a new one when its jobs have ended (images/elastic/decide.py). Its pod
takes it for its own at its end, as it would another one that begins like this."""

TOPOLOGY_REASON: Final = "slurmstack:waiting-for-topology"
"""Reason of the drain that a worker registers with where Slurm has a switch tree: the configuration agent lifts it when
the node is in the tree. One word, as it goes through slurmd's `--conf`."""

OURS: Final = "slurmstack"
"""What the reasons begin with that our programs give, but for the health checks'."""

ELASTIC: Final = "slurmstack/elastic:"
"""What the reasons begin with that the program `elastic` gives."""

ELASTIC_PARTITION: Final = "elastic-"
"""What the names of elastic pools' hidden partitions begin with (slurm/elastic.py)."""

NO_CAPACITY: Final = f"{ELASTIC} no capacity"
NO_START: Final = f"{ELASTIC} no node comes"
LATE: Final = f"{ELASTIC} did not come"
"""Drains of what is off: of a pool without machines, or whose nodes do not come for another reason, and of one node
that did not (images/elastic/starts.py). How often in a row follows: `, 3 in vain`."""

HELD_BACK: Final = f"{ELASTIC} held back"
"""Drains of a node that is off and stays so for a while (images/elastic/decide.py)."""

STAYS_LEAVING: Final = f"{HELD_BACK} until its last pod has gone"
"""Of one whose machine is dead, or whose kubelet: a job that got it would wait in vain (images/elastic/decide.py)."""

PLACED: Final = f"{HELD_BACK} until its pool has room"
"""Of a new one that is in the switch tree: the configuration agent does not know whether its pool waits."""

_ON_NODE: Final = "running,suspended,completing,configuring,stopped,signaling,stage_out"
"""States of jobs that have the node."""

UNKNOWN_NODE: Final = ("not found", "Invalid node name")
"""What Slurm's commands say where there is no record of that name."""

WANTED_NODES: Final = (
    ("squeue", "--all", "--noheader", "--states=pending", "--format=%n"),
    ("squeue", "--all", "--states=completing", "--json"),
)
"""Questions for nodes that pending jobs ask for by name (`--nodelist`), and that completing jobs had.

The records of such nodes have to stay: when slurmctld reads its files or starts, it ends a pending job with NODE_FAIL
that asks for a node it does not know, and one that was to be requeued is COMPLETING for ever if it does not know all
nodes that it had (`_sync_jobs_to_conf`; measured with 24.11 and 26.05). Only JSON has those that are done with it."""


@dataclass(frozen=True, kw_only=True)
class Gres:
    """A generic resource of the node."""

    name: str
    """`gpu` or `shard`."""
    count: int
    type: str = ""
    """As Slurm has it, `h100` or `1g.10gb`; empty: none."""

    def __str__(self) -> str:
        """As Slurm writes it."""
        return ":".join([self.name, *([self.type] if self.type else []), str(self.count)])


@dataclass(frozen=True, kw_only=True)
class NodeConf:
    """A node as it is to be registered."""

    cpus: int
    memory_mib: int
    features: tuple[str, ...]
    disk_mib: int | None = None
    """Of the jobs' /tmp; None where nothing was said of it."""
    gres: tuple[Gres, ...] = ()
    layout: str = ""
    """Sockets, cores and threads in Slurm's words, in place of the number of CPUs; the stack file has none."""

    @classmethod
    def parse(cls, text: str) -> NodeConf:
        """Out of the environment. Raises ValueError where it is not what the stack makes (slurm/sizing.py)."""
        try:
            found = json.loads(text)
            return cls(
                cpus=int(found["cpus"]),
                memory_mib=int(found["memory_mib"]),
                features=tuple(found["features"]),
                disk_mib=found.get("disk_mib"),
                gres=tuple(Gres(**one) for one in found["gres"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"NODE_CONF is not understood: {error!r}") from error

    @property
    def gpus(self) -> tuple[Gres, ...]:
        """Those of each type; parts of GPUs where they are divided."""
        return tuple(one for one in self.gres if one.name == "gpu")

    @property
    def is_divided(self) -> bool:
        """Whether it offers parts of GPUs (MIG)."""
        return any(_PROFILE.match(one.type) for one in self.gpus)

    @property
    def has_shards(self) -> bool:
        """Whether several jobs may have one GPU."""
        return any(one.name == "shard" for one in self.gres)

    @property
    def text(self) -> str:
        """As `slurmd --conf` takes it."""
        words = [self.layout or f"CPUs={self.cpus}", f"RealMemory={self.memory_mib}"]
        words += [f"TmpDisk={self.disk_mib}"] if self.disk_mib is not None else []
        words.append(f"Feature={','.join(self.features)}")
        words += [f"Gres={','.join(map(str, self.gres))}"] if self.gres else []
        return " ".join(words)


def wanted_nodes(pending: str, completing: str) -> frozenset[str]:
    """Names in what `WANTED_NODES` print. Raises NotUnderstoodError."""
    lists = {*pending.split()} - {"(null)"}
    lists |= {
        job["job_resources"]["nodes"]["list"] for job in entries_in(completing, "jobs") if job.get("job_resources")
    }
    return frozenset(name for line in lists for name in expand(line))


def shows_switch_tree(config: str) -> bool:
    """Whether what `scontrol show config` prints has one."""
    return re.search(r"(?im)^TopologyPlugin\s*=\s*topology/tree\s*$", config) is not None


class ControllerUnreachableError(Exception):
    """slurmctld did not answer."""


def waits_for_topology(record: NodeRecord) -> bool:
    """Whether it has registered drained, and is in no switch yet."""
    return record.is_drained and record.reason == TOPOLOGY_REASON


def is_ours(record: NodeRecord) -> bool:
    """Whether the drain, if there is one, is what a pod of ours set."""
    return record.reason.startswith(LEAVING_REASON) or record.reason == TOPOLOGY_REASON


class Commands:
    """Slurm's commands, for a time each."""

    def __init__(self, runner: Runner, timeout: float, env: Mapping[str, str]) -> None:
        """`env`: what they get besides this program's own environment."""
        self._runner, self._timeout, self._env = runner, timeout, {**os.environ, **env}

    def run(self, *argv: str) -> Result:
        """A command and how it ended."""
        return self._runner(argv, timeout=self._timeout, env=self._env)

    def answer(self, *argv: str) -> str:
        """What a question gave. Raises ControllerUnreachableError."""
        result = self.run(*argv)
        if not result.ok:
            raise ControllerUnreachableError(result.message)
        return result.stdout

    def wanted(self) -> frozenset[str]:
        """Nodes whose records jobs need. Raises ControllerUnreachableError, NotUnderstoodError."""
        return wanted_nodes(*(self.answer(*question) for question in WANTED_NODES))


@dataclass
class Node:
    """The node record of one name."""

    name: str
    runner: Runner = run
    controller: str | None = None
    """HOST:PORT to fetch Slurm's configuration from, before slurmd has fetched it for all programs of the pod."""

    timeout: float = 10.0

    def __post_init__(self) -> None:
        server = {"SLURM_CONF_SERVER": self.controller} if self.controller else {}
        self._slurm = Commands(self.runner, self.timeout, server)

    def record(self) -> NodeRecord | None:
        """The record, or None when Slurm has none of this name. Raises ControllerUnreachableError."""
        result = self._slurm.run("scontrol", "show", "node", self.name, "--json")
        try:
            records = node_records(result.stdout, NodeRecord)
        except NotUnderstoodError:
            records = []
        if records:
            return records[0]
        answered = result.code not in {TIMED_OUT, NO_PROGRAM}
        unknown = any(text in result.stderr + result.stdout for text in UNKNOWN_NODE)
        if answered and not records and (result.ok or unknown):
            return None
        raise ControllerUnreachableError(result.message)

    def has_jobs(self, record: NodeRecord) -> bool:
        """Whether a job is on the node, one that is still completing included. Raises ControllerUnreachableError.

        `record`: as it has just been read. Suspended jobs do not show there. squeue knows, and reads the whole queue,
        for which a node with jobs may have no memory left.
        """
        return record.is_busy or bool(self._jobs(_ON_NODE))

    def running_jobs(self) -> frozenset[str]:
        """Jobs on the node that have not begun to end, as `scontrol requeue` names them.

        Raises ControllerUnreachableError.
        """
        jobs = self._jobs("running,suspended,configuring,stopped")
        return frozenset(job.partition("+")[0] for job in jobs)  # 7+1: a part of job 7

    def _jobs(self, states: str) -> list[str]:
        result = self._slurm.run("squeue", "--noheader", f"--states={states}", f"--nodelist={self.name}", "--format=%i")
        if not result.ok and not any(text in result.stderr for text in UNKNOWN_NODE):
            raise ControllerUnreachableError(result.message)
        return result.stdout.split() if result.ok else []

    def requeue(self, jobs: Iterable[str]) -> Result:
        """Put jobs back into the queue, those of `sbatch` that may be; the result names the others.

        By itself Slurm would have jobs run once more that have ended, or were cancelled, meanwhile.
        """
        return self._slurm.run("scontrol", "requeue", "incomplete", ",".join(sorted(jobs)))

    def is_wanted(self) -> bool:
        """Whether a job needs this node's record. Raises as `Commands.wanted`."""
        return self.name in self._slurm.wanted()

    def has_switch_tree(self) -> bool:
        """Whether slurmctld uses one. Raises ControllerUnreachableError."""
        return shows_switch_tree(self._slurm.answer("scontrol", "show", "config"))

    def drain(self) -> Result:
        """Let no new job start on it; running ones go on."""
        return self._update("state=drain", f"reason={LEAVING_REASON}")

    def power_down(self) -> Result:
        """Let no new job start on it, and have Slurm power it down when the running ones have ended."""
        return self._update("state=power_down_asap", f"reason={LEAVING_REASON}")

    def set_down(self, reason: str = LEAVING_REASON) -> Result:
        """Tell Slurm that it is gone, so that its record can be deleted. Kills its jobs: ask `has_jobs` before."""
        return self._update("state=down", f"reason={reason}")

    def resume(self) -> Result:
        """Lift a drain or a down."""
        return self._update("state=resume")

    def delete(self) -> Result:
        """Remove the record. Slurm refuses while a job or a reservation has it."""
        return self._slurm.run("scontrol", "delete", f"nodename={self.name}")

    def _update(self, *changes: str) -> Result:
        return self._slurm.run("scontrol", "update", f"nodename={self.name}", *changes)
