"""The nodes of elastic pools in Slurm, read and changed with Slurm's own commands."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from images.common.command import Runner, run
from images.common.elastic.view import FEATURES, Node, Pool, marked, nodes_in
from images.common.slurm_node import (
    ELASTIC_PARTITION,
    ROLLS,
    TOPOLOGY_REASON,
    WANTED_NODES,
    shows_switch_tree,
    wanted_nodes,
)
from images.common.slurm_records import compress, expand

TIMEOUT_SECONDS: Final = 30.0


_TIMES: Final = {"SLURM_TIME_FORMAT": "%s"}
"""Seconds since 1970."""


class SlurmError(Exception):
    """slurmctld did not answer."""


class Nodes:
    """All commands about nodes. Changes that fail are logged: the next look tries again."""

    def __init__(self, log: Callable[[str], None], runner: Runner = run) -> None:
        self._log = log
        self._runner = runner

    def read(self) -> dict[str, Node]:
        """All records, by name. Raises SlurmError."""
        said = self._ask("scontrol", "show", "nodes", "--all", "--oneliner")
        return nodes_in(said)

    def starting(self) -> dict[str, frozenset[str]]:
        """Job -> its nodes, of jobs that wait for nodes to come. Raises SlurmError."""
        said = self._ask("squeue", "--all", "--noheader", "--states=configuring", "--format=%A %N")
        rows = (line.split(maxsplit=1) for line in said.splitlines())
        return {row[0]: frozenset(expand(row[1])) for row in rows if len(row) == 2}

    def ends(self) -> dict[str, float]:
        """Node -> when its jobs end at the latest, in seconds since 1970. Raises SlurmError."""
        said = self._ask("squeue", "--all", "--noheader", "--states=running", "--format=%e %N", env=_TIMES)
        found: dict[str, float] = {}
        for line in said.splitlines():
            end, _, names = line.partition(" ")
            for name in expand(names):
                found[name] = max(found.get(name, 0.0), float(end) if end.isdecimal() else math.inf)
        return found

    def create(self, pool: Pool, names: Iterable[str]) -> str:
        """Make records of nodes that are powered down; why that has to wait, or empty.

        The configuration agent deletes records of pools that are not in the configuration: that is older than the pool,
        or Slurm has rejected the newer one.

        Where a record was deleted before, 24.11 gives its place to a new one, and no job may have that: who deletes
        clears a bit (`share_node_bitmap`) that a node gets back when it is powered down by force.

        Where there is a switch tree, they get their features, by which partitions find them, with `place`: a record
        cannot be made drained, and a job that tries a node that is in no switch is put aside for good. Raises
        SlurmError.
        """
        hosts, conf, partition = compress(names), pool.conf.split(), f"{ELASTIC_PARTITION}{pool.name}"
        if not self._runner(["scontrol", "show", "partition", partition], timeout=TIMEOUT_SECONDS).ok:
            return f"{hosts}: no records before slurmctld has the pool in its configuration"
        if shows_switch_tree(self._ask("scontrol", "show", "config")):
            conf = [word for word in conf if not word.startswith(FEATURES)]
        if self._change("scontrol", "create", f"nodename={hosts}", "state=CLOUD", *conf):
            self._log(f"{hosts}: new records")
            self._change(
                "scontrol", "update", f"nodename={hosts}", "state=power_down_force", f"extra={marked(pool.mark)}"
            )
        return ""

    def place(self, pool: Pool, names: Iterable[str]) -> None:
        """Let new records be found, drained until the configuration agent has put them into the switch tree."""
        hosts = compress(names)
        how = ("state=drain", f"reason={TOPOLOGY_REASON}", f"features={pool.features}")
        if self._change("scontrol", "update", f"nodename={hosts}", *how):
            self._log(f"{hosts}: wait for their places in the switch tree")

    def delete(self, names: Iterable[str]) -> frozenset[str]:
        """Delete records, but those that a pending job asks for by name; which are gone. Raises SlurmError."""
        kept = wanted_nodes(self._ask(*WANTED_NODES))
        gone = frozenset(names) - kept
        hosts = compress(gone)
        if not gone or not self._change("scontrol", "delete", f"nodename={hosts}"):
            return frozenset()
        self._log(f"{hosts}: records deleted")
        return gone

    def drain(self, names: Iterable[str], reason: str) -> None:
        """Keep jobs from nodes that are off. Raises SlurmError.

        Slurm gives back or ends the jobs of one that has got some, and is not up yet (node_mgr.c).
        """
        self._drain(names, reason, lambda node: node.has_nothing)

    def roll(self, names: Iterable[str]) -> None:
        """Keep jobs from nodes that get new pods; who has drained one meanwhile had a reason. Raises SlurmError."""
        self._drain(names, ROLLS, lambda node: not (node.is_drained or node.is_down))

    def _drain(self, names: Iterable[str], reason: str, still: Callable[[Node], bool]) -> None:
        """Drain those for which it still holds when they are looked at once more."""
        now = self.read()
        if free := [name for name in names if name in now and still(now[name])]:
            self.update(free, "drain", reason)

    def update(self, names: Iterable[str], state: str, reason: str) -> None:
        """Change the state of nodes."""
        why = (f"reason={reason}",) if reason else ()
        hosts = compress(names)
        if self._change("scontrol", "update", f"nodename={hosts}", f"state={state}", *why):
            self._log(f"{hosts}: {state}{f' ({reason})' if reason else ''}")

    def _ask(self, *argv: str, env: Mapping[str, str] | None = None) -> str:
        done = self._runner(argv, timeout=TIMEOUT_SECONDS, env={**os.environ, **env} if env else None)
        if not done.ok:
            raise SlurmError(done.message)
        return done.stdout

    def _change(self, *argv: str) -> bool:
        done = self._runner(argv, timeout=TIMEOUT_SECONDS)
        if not done.ok:
            self._log(f"{' '.join(argv)}: {done.message}")
        return done.ok
