"""slurmctld of this pod: how it starts, how the config agent reaches it, and what it must not read.

It starts when the config agent has published a configuration that was checked.
"""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from images.common import terms
from images.common.command import TIMED_OUT, Result, Runner, run
from images.common.files import install_jwt_key, own_tree, write_atomically
from images.common.process import LOST_PEERS, NO_TRIGGERS, become, program, with_preloaded
from images.common.readiness import can_connect, wait_for_munge
from images.common.slurm_conf import setting, uses_database
from images.common.slurm_node import PLACED, WANTED_NODES, wanted_nodes
from images.common.slurm_records import NodeRecord, nodes_in
from images.common.wait import Clock, wait_for, wait_while
from images.controller.configuration import READ, READY, SLURM_CONF, STARTS, STATE, Files, Store, read_files

RECONFIGURE_TIMEOUT_SECONDS: Final = 60.0
PING_TIMEOUT_SECONDS: Final = 5.0
_NO_ANSWER: Final = "Socket timed out"
"""slurm_errno.c, SLURM_PROTOCOL_SOCKET_IMPL_TIMEOUT."""

_NODES: Final = ("scontrol", "show", "nodes", "--oneliner")
_RECORDS: Final = ("squeue", "--all", "--noheader", "--states=all", "--format=%A")
"""All job records, also of jobs that have ended a short while ago."""

_DEFAULT_MAX_JOBS: Final = "10000"
"""Slurm's own, where MaxJobCount is not set."""


@dataclass(kw_only=True)
class Slurmctld:
    """slurmctld of this pod, reached with Slurm's own commands. Threads may share it."""

    runner: Runner = run
    clock: Clock = field(default_factory=Clock)
    _env: dict[str, str] = field(default_factory=lambda: {**os.environ, "SLURM_CONF": str(SLURM_CONF)}, init=False)

    def is_up(self) -> bool:
        """Whether it answers."""
        result = self.runner(["scontrol", "ping"], timeout=PING_TIMEOUT_SECONDS, env=self._env)
        return result.ok and " is UP" in result.stdout

    def listens(self) -> bool:
        """Whether its port is open: one that ended refuses, one that waits for slurmdbd listens without an answer."""
        return can_connect("127.0.0.1")

    def reconfigure(self) -> Result:
        """Let it read its files again. Its exit code alone says little: it is 0 when slurmctld dies of them, too.

        `TIMED_OUT` where there was no answer: scontrol has a limit of its own, MessageTimeout.
        """
        result = self.runner(["scontrol", "reconfigure"], timeout=RECONFIGURE_TIMEOUT_SECONDS, env=self._env)
        if not result.ok and _NO_ANSWER in result.stderr:
            return Result(code=TIMED_OUT, stderr=result.stderr)
        return result

    def nodes(self) -> list[NodeRecord] | None:
        """All records, or None where it does not answer. As text: `--json` is several times as long."""
        text = self._ask(*_NODES)
        return None if text is None else nodes_in(text)

    def queue_text(self) -> str | None:
        """Each job that has not ended, one a line, or None where slurmctld does not answer.

        Its number (of an array's tasks that of the array), its state, and its partitions.
        """
        return self._ask("squeue", "--all", "--noheader", "--format=%F %t %P")

    def wanted_nodes(self) -> frozenset[str] | None:
        """Nodes whose records jobs need, or None where slurmctld does not answer."""
        listed = [answer for question in WANTED_NODES if (answer := self._ask(*question)) is not None]
        return wanted_nodes(*listed) if len(listed) == len(WANTED_NODES) else None

    def undrain(self, nodes: str) -> Result:
        """Lift a drain, and nothing else: a node that is down stays down."""
        return self._change("update", f"nodename={nodes}", "state=undrain")

    def register_busy(self) -> None:
        """Have all nodes with jobs say which they have. Slurm asks that of nodes whose drain is lifted.

        Those that are drained are left out.
        """
        names = [node.name for node in self.nodes() or () if node.is_busy and not node.is_drained]
        if names:
            self.undrain(",".join(names))

    def leave_to_elastic(self, nodes: str) -> Result:
        """Leave a drain for `elastic` to lift, of nodes that are in the switch tree now."""
        return self._change("update", f"nodename={nodes}", f"reason={PLACED}")

    def weights(self) -> dict[str, str]:
        """Weight of each node; none where it does not answer."""
        shown = self._ask("sinfo", "--all", "--Node", "--noheader", "--format=%N %w") or ""
        return dict(line.split() for line in shown.splitlines())

    def weigh(self, nodes: str, weight: str) -> Result:
        """Give nodes another weight, also those that are off."""
        return self._change("update", f"nodename={nodes}", f"weight={weight}")

    def delete_node(self, name: str) -> Result:
        """Remove the record of a dynamic node. Slurm refuses while a job or a reservation has it."""
        return self._change("delete", f"nodename={name}")

    def version(self) -> str:
        """For example `24.11.5`."""
        return self.runner(["slurmctld", "-V"]).stdout.strip().rpartition(" ")[2]

    def too_small(self, files: Files, before: Files) -> str | None:
        """Which limit of new files is too small, or None. It is asked only where a limit becomes smaller.

        At a reconfiguration slurmctld recovers its jobs and nodes up to these limits and forgets the rest: pending and
        running jobs without a trace, and nodes with the jobs on them, which are queued again (measured with 24.11 and
        26.05).
        """
        for key, default, listed in (("MaxJobCount", _DEFAULT_MAX_JOBS, _RECORDS), ("MaxNodeCount", None, _NODES)):
            limit = _lowered(key, files, before, default)
            if limit is None:
                continue
            text = self._ask(*listed)
            held = None if text is None else len(text.splitlines())
            if held is None or held > limit:
                return (
                    f"{key}={limit} is too small: slurmctld has {held or 'nobody knows how many'} records and would "
                    f"forget some, also running jobs. Set slurm.settings.{key} to what it was until there are fewer"
                )
        return None

    def _ask(self, *argv: str) -> str | None:
        result = self.runner(argv, env=self._env)
        return result.stdout if result.ok else None

    def _change(self, *words: str) -> Result:
        return self.runner(["scontrol", *words], env=self._env)


def _lowered(key: str, files: Files, before: Files, default: str | None) -> int | None:
    """The new value of a limit if it is smaller than the one in force."""
    new, old = (setting(of, key) or default for of in (files, before))
    if new is None or old is None or not (new.isdigit() and old.isdigit()) or int(new) >= int(old):
        return None
    return int(new)


@dataclass(frozen=True, kw_only=True)
class ClusterId:
    """The cluster's id, which slurmdbd gives: a slurmctld that ran without accounting has made up one of its own.

    slurmctld keeps the id in `clustername` in its state directory, and ends with "CLUSTER ID MISMATCH" when slurmdbd
    knows another one. It takes slurmdbd's where the file is missing (24.11.5 and 26.05.5, tried), and waits for
    slurmdbd then. So the file goes away the first time that a cluster is to use slurmdbd, at a moment when slurmdbd
    answers. From then on its id is slurmdbd's, as a marker says, and it starts without it.
    """

    state: Path = STATE

    @property
    def _marker(self) -> Path:
        return self.state / "slurmstack/accounting"

    def obstacle(self, files: Files) -> str | None:
        """What slurmctld has to wait for before it reads these files, or None."""
        if not uses_database(files) or self._marker.exists():
            return None
        address = f"{setting(files, 'AccountingStorageHost')}:{setting(files, 'AccountingStoragePort') or 6819}"
        return None if can_connect(address) else f"slurmdbd at {address}, which gives the cluster its id"

    def prepare(self, files: Files) -> None:
        """Call when slurmctld is about to read these files, and nothing is in the way."""
        if not uses_database(files):
            self._marker.unlink(missing_ok=True)
        elif not self._marker.exists():
            (self.state / "clustername").unlink(missing_ok=True)
            self._marker.parent.mkdir(parents=True, exist_ok=True)
            self._marker.touch()


_OWNED_BY_AGENT: Final = "slurmstack"
"""Directory in the state volume that the config agent writes; slurmctld only reads it."""


def command(state: Path) -> list[str]:
    """Command line of slurmctld.

    26.05 saves the usage of associations every five minutes, and refuses to start where it did not come to that
    ("fatal: No Assoc usage file"): killed in its first minutes, it would never start again. `-i` lets it.
    """
    began = (state / "clustername").exists() and not (state / "assoc_usage").exists()
    return ["/usr/sbin/slurmctld", "-D", *(["-i"] if began else []), "-f", str(SLURM_CONF)]


MOST_STARTS: Final = 3
"""With one configuration, until slurmctld has run with it: one that has ended so often would end again."""


def is_given_up(version: str, starts: Path = STARTS, ready: Path = READY) -> bool:
    """Count a start with this version. Whether it has had all of its starts: then the agent is to say so, and when."""
    before, _, count = starts.read_text(encoding="ascii").partition(" ") if starts.exists() else ("", "", "")
    number = int(count) + 1 if before == version else 1
    if number <= MOST_STARTS:
        write_atomically(starts, f"{version} {number}", sync=False)
        return False
    ready.unlink(missing_ok=True)
    starts.unlink()
    return True


def main() -> None:
    """Entry point."""
    with program("slurmctld") as log:
        terms.return_to_one_of_pod(STATE)
        checked = f"a checked configuration from config-agent ({READY})"
        wait_for(checked, READY.exists, log)
        if is_given_up(Store().current() or ""):
            log(f"slurmctld has ended {MOST_STARTS} times with this configuration, before it answered once")
            wait_for(checked, READY.exists, log)
        wait_for_munge(log)
        user = pwd.getpwnam("slurm")
        owner = (user.pw_uid, user.pw_gid)
        install_jwt_key(owner, log)
        files, cluster_id = read_files(SLURM_CONF.parent), ClusterId()
        if again := terms.finish_saves(STATE):
            log(f"an earlier slurmctld was ended while it saved; whole again: {', '.join(again)}")
        wait_while(lambda: cluster_id.obstacle(files), log, poll_seconds=0.2)
        cluster_id.prepare(files)
        state = STATE.resolve()  # with a standby it is a link
        own_tree(state, owner, but=lambda path: _OWNED_BY_AGENT in path.relative_to(state).parts)
        # Should another one be published right now, the agent finds that this is not it.
        write_atomically(READ, Store().current() or "", sync=False)
        become(command(STATE), log, env=with_preloaded(LOST_PEERS, NO_TRIGGERS))
