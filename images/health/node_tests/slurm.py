"""Slurm as the tests see it: nodes with their last results, tests that wait, run or have ended, and users who wait.

Nothing is remembered but in Slurm. A test's job is called `health-<test>:<node>,<node>`; slurmctld keeps it for a while
after its end (MinJobAge, 300 s), with the Comment in which it has told how it went. If nobody has read that by then,
the test is due as before. Reads what 24.11 (data_parser v0.0.42) and 26.05 (v0.0.45) print with `--json`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from images.common.command import Result, Runner
from images.health.node_list import ARGV, LIST_TIMEOUT_SECONDS
from images.health.node_tests.judge import as_json
from images.health.node_tests.plan import NodeView, Submit, TestJob, Waiting
from images.health.node_tests.results import decode
from images.health.node_tests.retest import Reservation

CHANGE_TIMEOUT_SECONDS: Final = 10.0
SCRIPT: Final = Path(__file__).with_name("on_node.py")
LOWEST: Final = 2_147_483_645
"""The most that `--nice` takes (sbatch(1))."""

_NAME: Final = re.compile(r"health-(?P<test>[a-z0-9][a-z0-9-]*):(?P<nodes>[^,:\s]+(?:,[^,:\s]+)*)")
_RESERVATION: Final = re.compile(r"ReservationName=(?P<name>\S+) .* Nodes=(?P<nodes>\S+) ")
_ENDED: Final = frozenset({"COMPLETED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE"})
_STOPPED: Final = frozenset({"CANCELLED", "PREEMPTED", "REVOKED"})
"""Ended from outside: as if it had not been."""


class SlurmError(Exception):
    """slurmctld did not answer, or not in a way that is understood."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A test that has come to its end."""

    number: int
    test: str
    nodes: tuple[str, ...]
    began: int
    """In seconds since 1970."""
    state: str
    comment: str


@dataclass(frozen=True, kw_only=True)
class Account:
    """On whose account tests run, where the site's accounting asks for one."""

    account: str = ""
    qos: str = ""
    partition: str = ""
    """In which tests run, in place of the first one of a node."""


def job_name(test: str, nodes: Sequence[str]) -> str:
    """The name of a test's job."""
    return f"health-{test}:{','.join(nodes)}"


@dataclass(frozen=True, kw_only=True)
class NodeRecord:
    """A node, and its Extra as it is."""

    view: NodeView
    extra: str


@dataclass(frozen=True, kw_only=True)
class Slurm:
    """slurmctld, through Slurm's own commands, as the user `slurm`."""

    runner: Runner
    account: Account = Account()
    pools: frozenset[str] = frozenset()
    """Names of pools: a node's features name its own."""

    def nodes(self) -> list[NodeRecord]:
        """All nodes. Raises SlurmError."""
        listing = self._listing(list(ARGV), "nodes")
        return [record for node in listing if (record := self._node(node)) is not None]

    def jobs(self) -> tuple[list[TestJob], list[Ended]]:
        """Tests that wait or run, and those that have ended. Raises SlurmError."""
        listing = self._listing(["squeue", "--me", "--states=all", "--json"], "jobs")
        live: list[TestJob] = []
        ended: list[Ended] = []
        for job in listing:
            found = _job(job)
            if isinstance(found, TestJob):
                live.append(found)
            elif found is not None:
                ended.append(found)
        return live, ended

    def waiting(self, tests: Iterable[int]) -> list[Waiting]:
        """Jobs that wait and are none of the tests. Raises SlurmError."""
        argv = ["squeue", "--all", "--noheader", "--states=PENDING", "--format=%A|%P|%r"]
        result = self.runner(argv, timeout=LIST_TIMEOUT_SECONDS)
        if not result.ok:
            raise SlurmError(result.message)
        own = {str(number) for number in tests}
        rows = [line.split("|", 2) for line in result.stdout.splitlines()]
        return [
            Waiting(partitions=tuple(_words(row[1], ",")), reason=row[2].strip())
            for row in rows
            if len(row) == len(("job", "partition", "reason")) and row[0].strip() not in own
        ]

    def reservations(self) -> list[Reservation]:
        """All of them. Raises SlurmError.

        Not as JSON, which leaves the comment out (24.11 and 26.05).
        """
        result = self.runner(["scontrol", "show", "reservation", "--oneliner"], timeout=LIST_TIMEOUT_SECONDS)
        if not result.ok:
            raise SlurmError(result.message)
        found = []
        for line in result.stdout.splitlines():
            front, _, comment = line.partition(" Comment=")  # the last value, of any text
            if match := _RESERVATION.match(f"{front} "):
                found.append(Reservation(name=match["name"], nodes=match["nodes"], comment=comment.strip()))
        return found

    def node(self, name: str) -> NodeRecord | None:
        """One node as it is now; None if there is none any more. Raises SlurmError."""
        listing = self._listing(["scontrol", "show", "node", name, "--json"], "nodes")
        records = (record for node in listing if (record := self._node(node)) is not None)
        return next((record for record in records if record.view.name == name), None)

    def submit(self, wish: Submit, argv: Sequence[str], directory: str, *, reservation: str = "") -> Result:
        """Start a test. Its standard output is the number of the job."""
        test, names = wish.test, [node.name for node in wish.nodes]
        spec = {
            "argv": list(argv),
            "keep": test.keep,
            "seconds": test.seconds,
            "environment": dict(test.environment),
            "directory": directory,
        }
        options = {
            "job-name": job_name(test.name, names),
            "partition": self.account.partition or wish.partition,
            "nodelist": ",".join(names),
            "nodes": str(len(names)),
            "time": str(test.minutes),
            "nice": str(LOWEST),
            "mem": "0",
            "chdir": "/",
            "output": "/dev/null",
            "error": "/dev/null",
            "account": self.account.account,
            "qos": self.account.qos,
            "gpus-per-node": str(wish.nodes[0].gpus or ""),
            "reservation": reservation,
        }
        given = [f"--{name}={value}" for name, value in options.items() if value]
        command = ["sbatch", "--parsable", "--exclusive", "--no-requeue", *given, str(SCRIPT), as_json(spec)]
        # Jobs get the environment of sbatch: the pod's own is none of theirs.
        environment = {name: os.environ[name] for name in ("PATH", "SLURM_CONF") if name in os.environ}
        return self.runner(command, timeout=CHANGE_TIMEOUT_SECONDS, env=environment)

    def cancel(self, numbers: Sequence[int]) -> Result:
        """End tests now."""
        return self.runner(["scancel", *[str(number) for number in numbers]], timeout=CHANGE_TIMEOUT_SECONDS)

    def write(self, name: str, extra: str) -> Result:
        """Set a node's Extra."""
        argv = ["scontrol", "update", f"nodename={name}", f"extra={extra}"]
        return self.runner(argv, timeout=CHANGE_TIMEOUT_SECONDS)

    def reserve(self, name: str, node: str, comment: str) -> Result:
        """Keep a node for the tests alone, for ever. MAINT: nodes of other reservations too."""
        argv = ["scontrol", "create", "reservation", f"reservationname={name}", f"nodes={node}", "users=slurm"]
        argv += ["starttime=now", "duration=UNLIMITED", "flags=MAINT,IGNORE_JOBS", f"comment={comment}"]
        return self.runner(argv, timeout=CHANGE_TIMEOUT_SECONDS)

    def release(self, reservation: str) -> Result:
        """Delete a reservation. Slurm refuses while a job that is in it waits or runs."""
        argv = ["scontrol", "delete", f"reservationname={reservation}"]
        return self.runner(argv, timeout=CHANGE_TIMEOUT_SECONDS)

    def drain(self, name: str, reason: str) -> Result:
        """Let no new job start on a node."""
        argv = ["scontrol", "update", f"nodename={name}", "state=drain", f"reason={reason}"]
        return self.runner(argv, timeout=CHANGE_TIMEOUT_SECONDS)

    def undrain(self, name: str, reason: str) -> Result:
        """Lift a drain, and nothing else."""
        argv = ["scontrol", "update", f"nodename={name}", "state=undrain", f"reason={reason}"]
        return self.runner(argv, timeout=CHANGE_TIMEOUT_SECONDS)

    def _listing(self, argv: Sequence[str], key: str) -> list[Mapping[str, Any]]:
        result = self.runner(argv, timeout=LIST_TIMEOUT_SECONDS)
        if not result.ok:
            raise SlurmError(result.message)
        try:
            listing = json.loads(result.stdout)[key]
        except (ValueError, KeyError, TypeError) as error:
            raise SlurmError(f"the list of {key} was not understood: {error!r}") from error
        if not isinstance(listing, list):
            raise SlurmError(f"the list of {key} was not understood: {type(listing).__name__}")
        return [entry for entry in listing if isinstance(entry, dict)]

    def _node(self, node: Mapping[str, Any]) -> NodeRecord | None:
        name, states = node.get("name"), _words(node.get("state"), "+")
        if not isinstance(name, str) or not name or not states:
            return None
        extra = node.get("extra") if isinstance(node.get("extra"), str) else ""
        features = _words(node.get("active_features"), ",") or _words(node.get("features"), ",")
        view = NodeView(
            name=name,
            states=frozenset(state.upper() for state in states),
            partitions=tuple(_words(node.get("partitions"), ",")),
            pool=next((feature for feature in sorted(features) if feature in self.pools), ",".join(sorted(features))),
            gpus=_gpus(node.get("gres")),
            started_at=_seconds(node.get("slurmd_start_time")),
            records=decode(str(extra)),
            reason=reason if isinstance(reason := node.get("reason"), str) else "",
            reason_at=_seconds(node.get("reason_changed_at")),
        )
        return NodeRecord(view=view, extra=str(extra))


def _job(job: Mapping[str, Any]) -> TestJob | Ended | None:
    """A test; None for what is no test, or was stopped."""
    match = _NAME.fullmatch(str(job.get("name", "")))
    states = {state.upper() for state in _words(job.get("job_state"), ",")}
    number = job.get("job_id")
    if match is None or not isinstance(number, int) or states & _STOPPED:
        return None
    test, nodes = match["test"], tuple(match["nodes"].split(","))
    if ended := states & _ENDED:
        comment, began = job.get("comment"), _seconds(job.get("start_time"))
        if not began:
            return None
        return Ended(
            number=number,
            test=test,
            nodes=nodes,
            began=began,
            state=min(ended),
            comment=comment if isinstance(comment, str) else "",
        )
    return TestJob(
        number=number,
        test=test,
        nodes=nodes,
        running="PENDING" not in states,
        submitted_at=float(_seconds(job.get("submit_time"))),
    )


def _words(value: object, divider: str) -> list[str]:
    """A list, which other parsers may give as one text."""
    if isinstance(value, str):
        return [word.strip() for word in value.split(divider) if word.strip()]
    return [str(word) for word in value] if isinstance(value, list) else []


def _gpus(gres: object) -> int:
    """GPUs in `gpu:8(S:0-1),shard:16`, `gpu:h100:8`."""
    if not isinstance(gres, str):
        return 0
    return sum(int(count) for count in re.findall(r"(?:^|,)gpu(?::[^:,()]+)?:(\d+)", gres))


def _seconds(value: object) -> int:
    """A number that may be unset; 0 then."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") and not value.get("infinite") else 0
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else 0
