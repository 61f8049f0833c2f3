"""The local cluster as it was recorded (data/healthy.json), which is asked like a real one."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cli.doctor.cluster.findings import Finding
from cli.doctor.cluster.rules import diagnose_job
from cli.status.questions import DOCTOR
from cli.status.snapshot import FIELDS, Snapshot, read_job, take
from config import load_config
from images.common.slurm_runs import DELIMITER
from slurm.conf import config_hash, render
from tests import stacks
from tests.fakes.kubectl import PlayedKubectl
from tests.fakes.squeue import printed

CONFIG = load_config(stacks.dev())
RECORDED = Path(__file__).with_name("data") / "healthy.json"
CLOCK = int(json.loads(RECORDED.read_text(encoding="utf-8"))["slurm"]["clock"][1])
"""When it was recorded, by the controller's clock, in seconds since 1970."""
NOW = "2099-01-01T00:00:00Z"


def recorded() -> RecordedCluster:
    """A whole cluster: two idle nodes, nothing in the queue, the configuration of the stack file."""
    document = json.loads(RECORDED.read_text(encoding="utf-8"))
    slurm: dict[str, tuple[int, Any]] = {"room": (0, f"     Avail  1B-blocks\n{2**30} {2**31}\n")}
    slurm |= {name: (code, text) for name, (code, text) in document["slurm"].items()}
    active = {"active": config_hash(render(CONFIG)), "pending": None, "rejected": None}
    slurm["jobs"] = (0, [])
    slurm |= {"squeue": (1, "slurm_load_jobs error: Invalid job id specified"), "sacct": (0, "")}
    slurm["configuration"] = (0, json.dumps(active))
    return RecordedCluster(objects=document["objects"], events=document["events"], slurm=slurm)


@dataclass(frozen=True, kw_only=True)
class RecordedCluster(PlayedKubectl):
    """Answers what `doctor` asks."""

    objects: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    slurm: dict[str, tuple[int, Any]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    """Kind, `exec` or `logs` -> what kubectl prints instead of an answer."""
    logs: dict[str, str] = field(default_factory=dict)
    """Pod -> what its slurmd has written."""
    output: dict[str, str] = field(default_factory=dict)
    """Path -> what a job has written there."""
    jail: tuple[str, str] = ("", "")
    """What a pod prints of it, and kubectl's complaint."""

    def run(
        self, *arguments: str, stdin: str | None = None, check: bool = True, **_: float
    ) -> subprocess.CompletedProcess[str]:
        del stdin, check
        if arguments[0] == "exec":
            return self._exec(arguments)
        if arguments[0] == "logs":
            refused = self.refused.get("logs", "")
            return subprocess.CompletedProcess(arguments, bool(refused), self.logs.get(arguments[3], ""), refused)
        asked = arguments[1].split(",")
        found = self.events if asked == ["event"] else self.objects
        found = [item for item in found if item["kind"].lower() in asked and item["kind"] not in self.refused]
        errors = "\n".join(text for kind, text in self.refused.items() if kind.lower() in asked)
        document = json.dumps({"kind": "List", "items": found})
        return subprocess.CompletedProcess(arguments, 1 if errors else 0, document, errors)

    def _exec(self, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        if "exec" in self.refused:
            return subprocess.CompletedProcess([], 1, "", self.refused["exec"])
        if arguments[-1] in self.output:
            return subprocess.CompletedProcess([], 0, self.output[arguments[-1]], "")
        if "--format=UID,GID,StdErr,StdOut" in arguments:
            return subprocess.CompletedProcess([], 0, DELIMITER.join(("7", "7", "", next(iter(self.output), ""))), "")
        for command in {"squeue", "sacct"} & {*arguments}:
            code, text = self.slurm[command]
            text = printed(" ".join(arguments), text) if isinstance(text, list) else text
            return subprocess.CompletedProcess([], code, "" if code else text, text if code else "")
        script = arguments[-1]
        marks = re.search(r"echo ([0-9a-f]{16}) end 0", script)
        if marks is None:  # the jail, as a pod sees it
            return subprocess.CompletedProcess([], int(bool(self.jail[1])), *self.jail)
        said = []
        for name, (code, text) in self.slurm.items():
            question = next((line for line in script.splitlines() if f"ask {name} " in line), "")
            if isinstance(text, list):  # rows of squeue or sinfo, by the columns that are asked for
                text = printed(question, text) if question else ""  # noqa: PLW2901
            if name not in {"squeue", "sacct"}:
                said.append(f"{marks[1]} {name} {code}\n{text if isinstance(text, str) else json.dumps(text)}\n")
        return subprocess.CompletedProcess([], 0, "".join(said), "")

    def look(self) -> Snapshot:
        """Ask, as the command does."""
        return take(self, CONFIG, DOCTOR)

    def explain(self, job: str, look: Snapshot | None = None) -> tuple[Finding, ...]:
        """The same of a job."""
        return diagnose_job(look or self.look(), read_job(self, "slurm", job, accounting=True))

    def thing(self, kind: str, name: str) -> dict[str, Any]:
        """One object, to be changed. `name`: its beginning is enough."""
        return next(item for item in self.objects if item["kind"] == kind and item["metadata"]["name"].startswith(name))

    def warn(self, kind: str, name: str, reason: str, message: str, *, first: str = "2020-01-01T00:00:00Z") -> None:
        """An event about an object, after all others; the `first` of its kind was then."""
        about = {"kind": kind, "name": name, "uid": self.thing(kind, name)["metadata"]["uid"]}
        event = {"kind": "Event", "involvedObject": about, "reason": reason, "message": message, "metadata": {}}
        self.events.append({**event, "firstTimestamp": first, "lastTimestamp": NOW})

    def remove(self, kind: str, name: str) -> None:
        """Have an object no more."""
        self.objects.remove(self.thing(kind, name))

    def unplaced(self, name: str, message: str) -> None:
        """A pod for which the scheduler has no machine."""
        pod = self.thing("Pod", name)
        pod["spec"].pop("nodeName", None)
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        pod["status"] = {"phase": "Pending", "conditions": [condition]}

    def waiting(
        self, name: str, reason: str, message: str = "", *, container: int = 0, last: tuple[int, str] | None = None
    ) -> None:
        """A pod one of whose containers does not run. `last`: exit status and reason of its last end."""
        status = self.thing("Pod", name)["status"]
        status["phase"] = "Pending" if not last else "Running"
        one = status["containerStatuses"][container]
        one |= {"ready": False, "state": {"waiting": {"reason": reason, "message": message}}}
        if last:
            one |= {"restartCount": 7, "lastState": {"terminated": {"exitCode": last[0], "reason": last[1]}}}

    def unready(self, name: str) -> None:
        """A pod that runs, and is not ready."""
        for status in self.thing("Pod", name)["status"]["containerStatuses"]:
            status["ready"] = False

    def node(self, name: str, *states: str, reason: str = "", by: str = "", comment: str = "", **more: Any) -> None:
        """A node of Slurm in these states."""
        entry = next(one for one in self.slurm["nodes"][1]["nodes"] if one["name"] == name)
        entry |= {"state": [*states, "DYNAMIC_NORM"], "reason": reason, "reason_set_by_user": by, **more}
        if comment:
            stamp = entry["comment"].split(" | ")[0]
            entry["comment"] = f"{stamp} | {comment}"

    def job(self, id_: str, reason: str, *, state: str = "PENDING", nodes: str = "", **more: str) -> None:
        """A job in the queue, in the form in which squeue printed real ones. `more`: `account`, `start`, `number`."""
        row = {
            "JobArrayID": id_, "Partition": "main", "State": state, "NodeList": nodes, "TimeLeft": "10:00",
            "TimeLimit": "30:00",
            "Reason": reason, "ReasonList": f"({reason})", "Account": more.get("account", "default"),
            "StartTime": more.get("start", "N/A"), "NumNodes": more.get("number", "1"),
        }  # fmt: skip
        self.slurm["jobs"] = (0, [*self.slurm["jobs"][1], row])

    def over(self, job: str, state: str, reason: str) -> None:
        """A job that slurmctld still has."""
        row = {"JobArrayID": job, "JobID": job, "State": state, "Reason": reason, "NodeList": "default-0"}
        self.slurm["squeue"] = (0, [row])

    def printed(self, pod: str, text: str) -> None:
        """Lines in the log of a pod's slurmd."""
        self.thing("Pod", pod)["spec"]["containers"] = [{"name": "slurmd"}]
        self.logs[pod] = "".join(f"2026-11-30T00:00:00.0Z {line}\n" for line in text.splitlines())

    def past(self, job: str, state: str, *, code: str = "0:0", nodes: str = "default-0") -> None:
        """A job's record in accounting."""
        row = {"JobID": job, "JobIDRaw": job, "State": state, "ExitCode": code, "NodeList": nodes, "Reason": "None"}
        row["UID"] = "7"
        record = DELIMITER.join(row.get(name, "Unknown") for name in FIELDS)
        self.slurm["sacct"] = (0, f"{self.slurm['sacct'][1]}{record}\n")
