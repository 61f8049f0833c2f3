"""A small Slurm behind the commands that the program uses: nodes, jobs, users, and a clock."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from images.common.command import Result

KEPT_SECONDS = 300
FLAGS = "flags=MAINT,IGNORE_JOBS"


def number(value: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": value}


@dataclass(kw_only=True)
class Job:
    number: int
    name: str
    nodes: list[str]
    began: int
    spec: dict[str, Any]
    state: str = "RUNNING"
    ended: int = 0
    comment: str = ""

    @property
    def test(self) -> str:
        return self.name.partition("-")[2].partition(":")[0]


@dataclass(kw_only=True)
class FakeCluster:
    """Jobs run until `end` is called, with the comment that `measure` gives."""

    names: list[str]
    gpus: int = 8
    now: int = 1_795_000_000
    measure: Callable[[Job], str] = lambda _job: ""
    extras: dict[str, str] = field(default_factory=dict)
    comments: dict[str, str] = field(default_factory=dict)
    started: dict[str, int] = field(default_factory=dict)
    """When slurmd started."""
    drained: set[str] = field(default_factory=set)
    reasons: dict[str, tuple[str, int]] = field(default_factory=dict)
    """And when they were set."""
    more_states: dict[str, list[str]] = field(default_factory=dict)
    reservations: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Name -> node and comment."""
    accounting: bool = True
    marked: bool = True
    """Nodes show that they are reserved."""
    on_command: Callable[[str], None] = lambda _command: None
    """Called before each one."""
    users_wait: list[tuple[str, str]] = field(default_factory=list)
    """Partition and reason."""
    jobs: list[Job] = field(default_factory=list)
    down: bool = False
    refuses: frozenset[str] = frozenset()
    """Programs that fail."""
    most_at_once: int = 0

    def wall(self) -> float:
        return float(self.now)

    def running(self) -> list[Job]:
        return [job for job in self.jobs if job.state == "RUNNING"]

    def end(self, state: str = "COMPLETED") -> None:
        """All tests come to their end."""
        for job in self.running():
            job.state, job.ended, job.comment = state, self.now, self.measure(job)

    def drain(self, name: str, reason: str) -> None:
        self.drained.add(name)
        self.reasons[name] = (reason, self.now)

    def is_open(self, name: str) -> bool:
        """Whether users' jobs could start on it."""
        return name not in self.drained and name not in {node for node, _ in self.reservations.values()}

    def __call__(self, argv: Sequence[str], *, timeout: float = 10.0, env: Mapping[str, str] | None = None) -> Result:
        assert timeout > 0
        assert env is None or "SLURM_JOB_ID" not in env
        self.on_command(" ".join(argv))
        if self.down:
            return Result(code=1, stderr="Unable to contact slurm controller")
        if argv[0] in self.refuses or " ".join(argv[:2]) in self.refuses:
            return Result(code=1, stderr="Access denied")
        return self._answer(argv)

    def _answer(self, argv: Sequence[str]) -> Result:
        command = " ".join(argv[:3])
        shown: dict[str, Callable[[], Result]] = {
            "scontrol show nodes": lambda: self._json("nodes", [self._node(name) for name in self.names]),
            "scontrol show node": lambda: self._json(
                "nodes", [self._node(name) for name in self.names if name in argv]
            ),
            "scontrol show reservation": self._show_reservations,
            "squeue --me --states=all": lambda: self._json(
                "jobs", [self._job(job) for job in self.jobs if self._is_kept(job)]
            ),
            "squeue --all --noheader": self._show_waiting,
        }
        changes = {
            "sbatch": self._sbatch,
            "scancel": self._scancel,
            "scontrol update": self._update,
            "scontrol create": self._reserve,
            "scontrol delete": self._release,
        }
        if command in shown:
            return shown[command]()
        return changes[" ".join(argv[:2]) if argv[0] == "scontrol" else argv[0]](argv)

    def _show_waiting(self) -> Result:
        rows = [f"{900 + index}|{partition}|{why}" for index, (partition, why) in enumerate(self.users_wait)]
        return Result(code=0, stdout="\n".join(rows))

    def _show_reservations(self) -> Result:
        rows = [
            f"ReservationName={name} StartTime=x Nodes={node} NodeCnt=1 Flags=MAINT State=ACTIVE Comment={comment}"
            for name, (node, comment) in self.reservations.items()
        ]
        return Result(code=0, stdout="\n".join(rows) or "No reservations in the system")

    def _is_kept(self, job: Job) -> bool:
        return job.state == "RUNNING" or self.now - job.ended < KEPT_SECONDS

    def _json(self, key: str, listing: list[dict[str, Any]]) -> Result:
        return Result(code=0, stdout=json.dumps({key: listing}))

    def _node(self, name: str) -> dict[str, Any]:
        busy = any(name in job.nodes for job in self.running())
        states = ["ALLOCATED" if busy else "IDLE", *(["DRAIN"] if name in self.drained else [])]
        if self.marked and name in {node for node, _ in self.reservations.values()}:
            states.append("MAINTENANCE")
        reason, set_at = self.reasons.get(name, ("", 0))
        return {
            "name": name,
            "state": [*states, *self.more_states.get(name, [])],
            "reason": reason,
            "reason_changed_at": number(set_at),
            "partitions": ["main"],
            "active_features": ["pool"],
            "gres": f"gpu:{self.gpus}",
            "extra": self.extras.get(name, ""),
            "comment": self.comments.get(name, ""),
            "slurmd_start_time": number(self.started.get(name, 1)),
        }

    def _job(self, job: Job) -> dict[str, Any]:
        return {
            "job_id": job.number,
            "name": job.name,
            "job_state": [job.state],
            "submit_time": number(job.began),
            "start_time": number(job.began),
            "comment": job.comment,
        }

    def _sbatch(self, argv: Sequence[str]) -> Result:
        options = dict(option.split("=", 1) for option in argv if option.startswith("--") and "=" in option)
        nodes = options["--nodelist"].split(",")
        assert not any(set(nodes) & set(job.nodes) for job in self.running())
        assert not set(nodes) & self.drained
        kept = [node for node, _ in self.reservations.values()]
        reserved = self.reservations.get(options.get("--reservation", ""), ("", ""))[0]
        assert all((name == reserved) if name in kept else not reserved for name in nodes)
        job = Job(
            number=len(self.jobs) + 1,
            name=options["--job-name"],
            nodes=nodes,
            began=self.now,
            spec=json.loads(argv[-1]),
        )
        self.jobs.append(job)
        self.most_at_once = max(self.most_at_once, sum(len(job.nodes) for job in self.running()))
        return Result(code=0, stdout=f"{job.number}\n")

    def _scancel(self, argv: Sequence[str]) -> Result:
        for job in self.running():
            if str(job.number) in argv[1:]:
                job.state, job.ended = "CANCELLED", self.now
        return Result(code=0)

    def _reserve(self, argv: Sequence[str]) -> Result:
        words = dict(word.split("=", 1) for word in argv[3:])
        assert {"users=slurm", "starttime=now", "duration=UNLIMITED", FLAGS} <= set(argv)
        assert words["reservationname"] not in self.reservations
        self.reservations[words["reservationname"]] = (words["nodes"], words["comment"])
        return Result(code=0, stdout=f"Reservation created: {words['reservationname']}")

    def _release(self, argv: Sequence[str]) -> Result:
        name = argv[2].removeprefix("reservationname=")
        node, _ = self.reservations[name]
        if any(node in job.nodes for job in self.running()):
            return Result(code=1, stderr="Requested reservation is in use")
        del self.reservations[name]
        return Result(code=0)

    def _update(self, argv: Sequence[str]) -> Result:
        assert argv[:2] == ["scontrol", "update"]
        name = argv[2].removeprefix("nodename=")
        words = dict(word.split("=", 1) for word in argv[3:])
        if "extra" in words:
            self.extras[name] = words["extra"]
        if words.get("state") == "drain":
            self.drain(name, words["reason"])
        if "reason" in words and "state" not in words:
            self.reasons[name] = (words["reason"], self.now)
        if words.get("state") == "undrain":
            self.drained.discard(name)
            self.reasons[name] = (words["reason"], self.now)
            if self.accounting:  # `clusteracct_storage_g_node_up` of 24.11: of a node that is idle
                del self.reasons[name]
        return Result(code=0)
