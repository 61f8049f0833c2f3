"""slurmctld with what tests of nodes ask of it besides: their jobs, reservations, users who wait, and a clock."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from images.common.command import Result
from tests.fakes.slurmctld import FakeNode, FakeSlurmctld, number

KEPT_SECONDS = 300
FLAGS = "flags=MAINT,IGNORE_JOBS"


@dataclass(kw_only=True)
class Job:
    number: int
    name: str
    node: str
    began: int
    spec: dict[str, Any]
    state: str = "RUNNING"
    ended: int = 0
    comment: str = ""

    @property
    def test(self) -> str:
        return self.name.partition("-")[2].partition(":")[0]


class FakeCluster(FakeSlurmctld):
    """Nodes w-0, w-1, ... Jobs run until `end` is called, with the comment that `measure` gives."""

    def __init__(self, count: int = 1, *, gpus: int = 8, measure: Callable[[Job], str] = lambda _job: "") -> None:
        super().__init__(lambda: float(self.now), {f"w-{index}": FakeNode(states={"IDLE"}) for index in range(count)})
        self.now = 1_795_000_000
        self.gpus = gpus
        self.measure = measure
        self.reservations: dict[str, tuple[str, str]] = {}
        """Name -> node and comment."""
        self.users_wait: list[str] = []
        """For what their jobs wait in the partition `main`."""
        self.jobs: list[Job] = []
        self.denied: frozenset[str] = frozenset()
        """Programs that fail."""
        ours: dict[str, Callable[[Sequence[str]], Result]] = {
            "scontrol show reservation": self._show_reservations,
            "squeue --me --states=all": self._show_jobs,
            "squeue --all --noheader": self._show_waiting,
            "sbatch": self._sbatch,
            "scancel": self._scancel,
            "scontrol create": self._reserve,
            "scontrol delete reservationname": self._release,
        }
        self.runner.answers |= {beginning: self._answers("error", answer) for beginning, answer in ours.items()}

    def running(self) -> list[Job]:
        return [job for job in self.jobs if job.state == "RUNNING"]

    def end(self, state: str = "COMPLETED") -> None:
        """All tests come to their end."""
        for job in self.running():
            job.state, job.ended, job.comment = state, self.now, self.measure(job)

    def drain(self, name: str, reason: str) -> None:
        node = self.nodes[name]
        node.states.add("DRAIN")
        node.reason, node.reason_at = reason, self.now

    @property
    def drained(self) -> set[str]:
        return {name for name, node in self.nodes.items() if "DRAIN" in node.states}

    @property
    def extras(self) -> dict[str, str]:
        return {name: node.extra for name, node in self.nodes.items() if node.extra}

    @property
    def _reserved(self) -> set[str]:
        return {node for node, _ in self.reservations.values()}

    def __call__(self, argv: Sequence[str], *, timeout: float = 10.0, env: Mapping[str, str] | None = None) -> Result:
        assert env is None or "SLURM_JOB_ID" not in env
        command = " ".join(argv)
        assert command.startswith(tuple(self.runner.answers)), command
        if argv[0] in self.denied or " ".join(argv[:2]) in self.denied:
            return Result(code=1, stderr="Access denied")
        return self.runner(argv, timeout=timeout, env=env)

    def _record(self, name: str, node: FakeNode) -> dict[str, Any]:
        busy = any(name == job.node for job in self.running())
        marks = {"MAINTENANCE"} if name in self._reserved else set()
        return {
            **super()._record(name, node),
            "state": sorted((node.states - {"IDLE"}) | {"ALLOCATED" if busy else "IDLE"} | marks),
            "partitions": ["main"],
            "active_features": ["pool"],
            "gres": f"gpu:{self.gpus}",
        }

    def _show_waiting(self, _: Sequence[str]) -> Result:
        rows = [*(f"main|{why}|alice" for why in self.users_wait), "other|Priority|bob", "main|Resources|slurm"]
        return Result(code=0, stdout="\n".join(rows))

    def _show_reservations(self, _: Sequence[str]) -> Result:
        rows = [
            f"ReservationName={name} StartTime=x Nodes={node} NodeCnt=1 Flags=MAINT State=ACTIVE Comment={comment}"
            for name, (node, comment) in self.reservations.items()
        ]
        return Result(code=0, stdout="\n".join(rows) or "No reservations in the system")

    def _show_jobs(self, _: Sequence[str]) -> Result:
        kept = [job for job in self.jobs if not job.ended or self.now - job.ended < KEPT_SECONDS]
        return Result(code=0, stdout=json.dumps({"jobs": [self._job(job) for job in kept]}))

    def _job(self, job: Job) -> dict[str, Any]:
        return {
            "job_id": job.number,
            "name": job.name,
            "job_state": [job.state],
            "submit_time": number(job.began),
            "end_time": number(job.ended),
            "comment": job.comment,
        }

    def _sbatch(self, argv: Sequence[str]) -> Result:
        options = dict(option.split("=", 1) for option in argv if option.startswith("--") and "=" in option)
        node = options["--nodelist"]
        assert not any(node == job.node for job in self.running())
        assert node not in self.drained
        reserved = self.reservations.get(options.get("--reservation", ""), ("", ""))[0]
        assert node == reserved if node in self._reserved else not reserved
        job = Job(
            number=len(self.jobs) + 1,
            name=options["--job-name"],
            node=node,
            began=self.now,
            spec=json.loads(argv[-1]),
        )
        self.jobs.append(job)
        return Result(code=0, stdout=f"{job.number}\n")

    def _scancel(self, argv: Sequence[str]) -> Result:
        for job in self.jobs:
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
        node, _ = self.reservations.get(name, ("", ""))
        if not node or any(node == job.node for job in self.running()):
            return Result(code=1, stderr="Requested reservation is invalid, or in use")
        del self.reservations[name]
        return Result(code=0)
