"""Random events on an elastic pool of the real local Kubernetes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from images.common.elastic.view import SETTINGS
from tests import elastic_events
from tests.e2e.harness import SlurmOnKubernetes, wait_until

UNSAID = {"NOT_RESPONDING", "PLANNED"}


class World(elastic_events.World):
    """An elastic pool that slurmstack has applied, and who kills what belongs to it."""

    agree_within = 120
    settle_within = 240

    def __init__(self, slurm: SlurmOnKubernetes, pool: str) -> None:
        super().__init__(pool)
        self._on = slurm
        template = slurm.kubectl.json("get", "podtemplate", pool, "-n", slurm.namespace)
        self._usual = json.loads(template["metadata"]["annotations"][SETTINGS])

    def slurm(self, command: str) -> str:
        return self._on.slurm(f"{command} 2>&1", check=False)

    def sbatch(self, options: str, script: str) -> str:
        return self._on.ssh(f"sbatch {options} --wrap '{script}' 2>&1", check=False)

    def states(self) -> dict[str, str]:
        lines = self.slurm("scontrol show nodes --all --oneliner").splitlines()
        found = {line.split()[0].partition("=")[2]: line.partition(" State=")[2] for line in lines if " State=" in line}
        return {
            name: "+".join(one for one in text.split()[0].split("+") if one not in UNSAID)
            for name, text in found.items()
            if name.startswith(f"{self.pool}-")
        }

    def pods(self) -> dict[str, dict[str, Any]]:
        return {name: pod for name, pod in self._on.pods().items() if name.startswith(f"{self.pool}-")}

    def lose(self, pod: str) -> None:
        self._delete(pod, "--grace-period=1")

    def ask_to_leave(self, pod: str) -> None:
        self._delete(pod)

    def set_pool(self, **changes: Any) -> None:
        said = json.dumps({**self._usual, **changes}, sort_keys=True)
        self._kubectl("annotate", "--overwrite", "podtemplate", self.pool, f"{SETTINGS}={said}")

    def said(self) -> str:
        logs = self._on.look("logs", "-n", self._on.namespace, "-l", "app.kubernetes.io/component=elastic", "--tail=40")
        return f"{logs}\n{self.slurm('squeue --all; sinfo --Node --all --long')}"

    def wait_until(self, condition: Callable[[], bool], what: Callable[[], str], timeout: float) -> None:
        wait_until(condition, what, timeout=timeout)

    def weights(self) -> Mapping[Callable[[], str], int]:
        more = {self.restart_elastic: 6, self.restart_slurmctld: 3, self.kill_slurmctld: 1}
        return {**super().weights(), **more}

    def restart_elastic(self) -> str:
        self._kubectl("delete", "pod", "-l", "app.kubernetes.io/component=elastic", "--wait=false")
        return ""

    def restart_slurmctld(self) -> str:
        return self._end_slurmctld("TERM")

    def kill_slurmctld(self) -> str:
        time.sleep(6)  # what slurmctld has accepted in the last five seconds it may not have written yet
        return self._end_slurmctld("KILL")

    def _end_slurmctld(self, signal: str) -> str:
        find = f"for pid in /proc/[0-9]*; do [ $(cat $pid/comm) != slurmctld ] || kill -{signal} ${{pid#/proc/}}; done"
        self.slurm(find)
        time.sleep(1)
        status = self._on.kubectl.json("get", "pod", "controller-0", "-n", self._on.namespace)["status"]
        if max(container["restartCount"] for container in status["containerStatuses"]) > 1:
            self._delete("controller-0", "--grace-period=5")  # in the same pod kubelet waits longer each time
        wait_until(lambda: "is UP" in self.slurm("scontrol ping"), "slurmctld answers")
        return ""

    def _delete(self, pod: str, *options: str) -> None:
        self._kubectl("delete", "pod", pod, "--wait=false", "--ignore-not-found", *options)

    def _kubectl(self, *arguments: str) -> None:
        self._on.kubectl.run(*arguments, "-n", self._on.namespace)
