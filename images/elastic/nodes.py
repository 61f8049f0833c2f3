"""The nodes of pools in Slurm, read and changed with Slurm's own commands."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from images.common.command import Runner, run
from images.common.slurm_node import (
    ELASTIC_PARTITION,
    TOPOLOGY_REASON,
    WANTED_NODES,
    shows_switch_tree,
    wanted_nodes,
)
from images.common.slurm_records import NotUnderstoodError, compress, expand, node_records
from images.elastic.view import FEATURES, Node, Pool, marked

TIMEOUT_SECONDS: Final = 30.0

_OF_US: Final = re.compile(r"[a-z0-9][a-z0-9-]*-\d+")
_TIMES: Final = {"SLURM_TIME_FORMAT": "%s"}
"""Seconds since 1970."""


class SlurmError(Exception):
    """slurmctld did not answer."""


class Nodes:
    """All commands about nodes. A change returns why it was refused, or nothing."""

    def __init__(self, log: Callable[[str], None], runner: Runner = run) -> None:
        self._log = log
        self._runner = runner

    def read(self) -> dict[str, Node]:
        """All records but an administrator's own, by name. Raises SlurmError."""
        said = self._ask("scontrol", "show", "nodes", "--all", "--json")
        if said.startswith("No nodes"):
            return {}
        try:
            return {node.name: node for node in node_records(said, Node) if _OF_US.fullmatch(node.name)}
        except NotUnderstoodError as error:
            raise SlurmError(str(error)) from error

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
        """Make records of nodes that are powered down.

        The configuration agent deletes records of pools that are not in the configuration: that is older than the pool,
        or Slurm has rejected the newer one.

        Where a record was deleted before, 24.11 gives its place to a new one, and no job may have that: who deletes
        clears a bit (`share_node_bitmap`) that a node gets back when it is powered down by force.

        Where there is a switch tree, they get their features, by which partitions find them, with `place`: a record
        cannot be made drained, and a job that tries a node that is in no switch is put aside for good. Raises
        SlurmError.
        """
        hosts, conf, partition = compress(names), pool.conf.split(), f"{ELASTIC_PARTITION}{pool.name}"
        if self._change("show", "partition", partition):
            return f"{hosts}: no records before slurmctld has the pool in its configuration"
        if shows_switch_tree(self._ask("scontrol", "show", "config")):
            conf = [word for word in conf if not word.startswith(FEATURES)]
        refused = self._change("create", f"nodename={hosts}", "state=CLOUD", *conf, done=f"{hosts}: new records")
        return refused or self._change(
            "update", f"nodename={hosts}", "state=power_down_force", f"extra={marked(pool.mark)}"
        )

    def place(self, pool: Pool, names: Iterable[str]) -> str:
        """Let new records be found, drained until the configuration agent has put them into the switch tree."""
        hosts = compress(names)
        how = ("state=drain", f"reason={TOPOLOGY_REASON}", f"features={pool.features}")
        return self._change("update", f"nodename={hosts}", *how, done=f"{hosts}: wait for the switch tree")

    def wanted(self) -> frozenset[str]:
        """Nodes that a pending job asks for by name: their records have to stay. Raises SlurmError."""
        return wanted_nodes(self._ask(*WANTED_NODES))

    def delete(self, names: Iterable[str]) -> str:
        """Delete records."""
        hosts = compress(names)
        return self._change("delete", f"nodename={hosts}", done=f"{hosts}: records deleted")

    def update(self, names: Iterable[str], state: str, reason: str) -> str:
        """Change the state of nodes."""
        hosts, why = compress(names), (f"reason={reason}",) if reason else ()
        said = f"{hosts}: {state}{f' ({reason})' if reason else ''}"
        return self._change("update", f"nodename={hosts}", f"state={state}", *why, done=said)

    def _ask(self, *argv: str, env: Mapping[str, str] | None = None) -> str:
        done = self._runner(argv, timeout=TIMEOUT_SECONDS, env={**os.environ, **env} if env else None)
        if not done.ok:
            raise SlurmError(done.message)
        return done.stdout

    def _change(self, *argv: str, done: str = "") -> str:
        result = self._runner(["scontrol", *argv], timeout=TIMEOUT_SECONDS)
        if result.ok and done:
            self._log(done)
        return "" if result.ok else f"scontrol {' '.join(argv)}: {result.message}"
