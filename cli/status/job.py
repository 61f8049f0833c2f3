"""One job, as slurmctld and slurmdbd know it: for `logs --job` and `doctor job`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cli.kubectl.client import ANSWER_SECONDS, Kubectl, complaint, if_slurmdbd_answers, in_controller
from images.common.slurm_jobs import ENVIRONMENT, Job, JobList
from images.common.slurm_records import NotUnderstoodError, expand
from images.common.slurm_runs import RecordError, rows, sacct

JOB = r"\d{1,10}([_+]\d{1,10})?"
"""What people may call a job: a number, the task of an array, or a part of a heterogeneous job."""

JOBS = JobList("id", "number", "user", "partitions", "state", "reason", "submitted", "start", "end", "node_list")

FIELDS = (
    "JobID", "JobIDRaw", "User", "Partition", "State", "Submit", "Eligible", "Start", "End", "NodeList",
    "ExitCode", "Reason", "JobName",
)  # fmt: skip
"""Of sacct. A job's name may be any text, so it comes last."""

_UNKNOWN_JOB = "Invalid job id"


@dataclass(frozen=True, kw_only=True)
class KnownJob:
    """A job, or the tasks of an array, as far as Slurm knows it."""

    id: str
    """As people write it."""
    present: tuple[Job, ...]
    """As slurmctld has it; nothing some minutes after its end."""
    runs: tuple[Mapping[str, str], ...]
    """Its records in accounting, by FIELDS: each run of it, and the steps of that. Times are seconds since 1970."""
    missing: Mapping[str, str]
    """Who could not be asked, and why."""

    @property
    def ids(self) -> frozenset[str]:
        """All numbers that stand for it in logs: of a task of an array, its own too."""
        numbers = {*(run["JobIDRaw"].partition(".")[0] for run in self.runs), *(one.number for one in self.present)}
        return frozenset({self.id, *numbers})

    @property
    def nodes(self) -> frozenset[str]:
        """Where it ran, also before it was queued again."""
        lists = {*(run["NodeList"] for run in self.runs), *(one.node_list for one in self.present)} - {"None assigned"}
        return frozenset(name for listed in lists for name in expand(listed))


def read_job(
    kubectl: Kubectl, namespace: str, job: str, *, accounting: bool, seconds: float = ANSWER_SECONDS
) -> KnownJob:
    """Ask slurmctld for what is, and slurmdbd for what has been. Nothing is raised.

    `job`: a number that the caller has checked. `seconds`: for slurmctld; slurmdbd has twice as many.
    """
    words = ("env", *(f"{name}={value}" for name, value in ENVIRONMENT.items()), *JOBS.command)
    shown = in_controller(kubectl, namespace, *words, "--states=all", f"--jobs={job}", seconds=seconds)
    present: list[Job] = []
    runs: list[dict[str, str]] = []
    missing: dict[str, str] = {}
    try:
        if shown.returncode == 0:
            present = list(JOBS.read(shown.stdout))
        elif _UNKNOWN_JOB not in shown.stderr:
            missing["squeue"] = complaint(shown)
    except NotUnderstoodError as error:
        missing["squeue"] = str(error)
    if accounting:
        asking = if_slurmdbd_answers([*sacct(FIELDS), "--duplicates", f"--jobs={job}"])
        recorded = in_controller(kubectl, namespace, *asking, seconds=2 * seconds)
        try:
            if recorded.returncode == 0:
                runs = list(rows(recorded.stdout.splitlines(), FIELDS))
            else:
                missing["sacct"] = complaint(recorded)
        except RecordError as error:
            missing["sacct"] = str(error)
    return KnownJob(id=job, present=tuple(present), runs=tuple(runs), missing=missing)
