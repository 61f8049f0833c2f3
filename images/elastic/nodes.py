"""The nodes of elastic pools in Slurm, read and changed with Slurm's own commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from images.common.command import Runner, run
from images.common.hostlist import compress, expand
from images.common.slurm_node import WANTED_NODES, wanted_nodes
from images.elastic.view import Node, Pool, marked, nodes_in

TIMEOUT_SECONDS: Final = 30.0


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

    def create(self, pool: Pool, names: Iterable[str]) -> None:
        """Make records of nodes that are powered down.

        Where a record was deleted before, 24.11 gives its place to a new one, and no job may have that: who deletes
        clears a bit (`share_node_bitmap`) that a node gets back when it is powered down by force.
        """
        hosts = compress(names)
        if self._change("scontrol", "create", f"nodename={hosts}", "state=CLOUD", *pool.conf.split()):
            self._log(f"{hosts}: new records")
            self._change(
                "scontrol", "update", f"nodename={hosts}", "state=power_down_force", f"extra={marked(pool.mark)}"
            )

    def delete(self, names: Iterable[str]) -> None:
        """Delete records, but those that a pending job asks for by name. Raises SlurmError."""
        kept = wanted_nodes(self._ask(*WANTED_NODES))
        gone = compress(name for name in names if name not in kept)
        if gone and self._change("scontrol", "delete", f"nodename={gone}"):
            self._log(f"{gone}: records deleted")

    def update(self, names: Iterable[str], state: str, reason: str) -> None:
        """Change the state of nodes."""
        why = (f"reason={reason}",) if reason else ()
        hosts = compress(names)
        if self._change("scontrol", "update", f"nodename={hosts}", f"state={state}", *why):
            self._log(f"{hosts}: {state}{f' ({reason})' if reason else ''}")

    def _ask(self, *argv: str) -> str:
        done = self._runner(argv, timeout=TIMEOUT_SECONDS)
        if not done.ok:
            raise SlurmError(done.message)
        return done.stdout

    def _change(self, *argv: str) -> bool:
        done = self._runner(argv, timeout=TIMEOUT_SECONDS)
        if not done.ok:
            self._log(f"{' '.join(argv)}: {done.message}")
        return done.ok


def nodes_of_jobs(known: Mapping[str, frozenset[str]], now: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """What is remembered of the jobs that wait for nodes: the latest thousand, since such a job is often seen gone."""
    merged = {**known, **now}
    return dict(list(merged.items())[-1000:])
