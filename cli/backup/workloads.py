"""What a restore stops and starts: a cluster's StatefulSets and Deployments, with how many pods each had."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from cli.change.owner import REPLICAS_BEFORE, is_stopped
from cli.errors import Failure
from cli.kubectl.client import FIELD_MANAGER, Kubectl, is_true
from local.report import Step
from slurm.names import ACCOUNTING, ACTIVE, CONTROLLER, ELASTIC, LOGIN, WORKER

STARTING = (ACCOUNTING, CONTROLLER, WORKER, LOGIN, ELASTIC)

_GRACE = 10
"""Seconds for pods of workers and login nodes to end. Their jobs have no slurmctld to report to."""

_STOP_SECONDS = 600.0
_START_SECONDS = 4 * 3600.0
"""As in components/accounting.py: slurmdbd converts a database of an older Slurm first."""

_MOST_ENDS = 5
"""Ends of a container one after the other, a matter of three minutes."""

_POLL = 1.0


def component_of(item: Mapping[str, Any]) -> str:
    """What a workload is of: `controller`, `worker` and the like."""
    return str(item["metadata"].get("labels", {}).get("app.kubernetes.io/component", ""))


def _replicas_of(item: Mapping[str, Any]) -> int:
    """How many pods a workload has, or had before it was stopped."""
    noted = (item["metadata"].get("annotations") or {}).get(REPLICAS_BEFORE)
    return int(item["spec"].get("replicas", 1)) or int(noted or 0)


class Workloads:
    """Those of one cluster."""

    def __init__(self, kubectl: Kubectl, namespace: str) -> None:
        self._kubectl = kubectl
        self._namespace = namespace

    def objects(self) -> list[dict[str, Any]]:
        """As they are now."""
        return self._kubectl.items("statefulset,deployment", "-n", self._namespace)

    def stop(self, components: Sequence[str]) -> None:
        """Stop them, slurmctld first, and wait until their pods are gone. Raises Failure."""
        there = self.objects()
        first = [component for component in components if component in {CONTROLLER, ELASTIC}]
        for together in (*([component] for component in first), [each for each in components if each not in first]):
            for item in there:
                if component_of(item) in together and (replicas := _replicas_of(item)):
                    self._scale(item, 0, note=str(replicas))
            for component in together:
                if component in {WORKER, LOGIN}:
                    self._end_pods(component)
            for component in together:
                self._wait_gone(component)

    def start(self, components: Collection[str]) -> None:
        """Let them have as many pods as they had. Raises Failure."""
        there = self.objects()
        for component in (each for each in STARTING if each in components):
            for item in there:
                if component_of(item) == component and is_stopped(item):
                    self._scale(item, _replicas_of(item), note=None)

    def wait_ready(self, name: str, step: Step) -> None:
        """Wait until one of these pods does its work. Raises Failure, also where it ends again and again."""
        until = time.monotonic() + _START_SECONDS
        while True:
            found = self._kubectl.items("statefulset", name, "-n", self._namespace)
            if not found or self._is_ready(found[0]):
                return
            if time.monotonic() > until:
                raise Failure(
                    f"all is put back, but {name} was not ready within {_START_SECONDS / 60:g} minutes",
                    hint=f"`slurmstack logs {name}` says what it waits for",
                )
            self._refuse_ending(name)
            step.progress(0, 0, f"waiting for {name}")
            time.sleep(_POLL)

    def _refuse_ending(self, name: str) -> None:
        """Raise Failure where its containers will not start by waiting."""
        found = self._kubectl.items("pod", "-n", self._namespace, "-l", f"app.kubernetes.io/component={name}")
        for container in (status for pod in found for status in pod.get("status", {}).get("containerStatuses", [])):
            if container.get("restartCount", 0) >= _MOST_ENDS:
                raise Failure(
                    f"all is put back, but {container['name']} of {name} ends again and again",
                    hint=f"`slurmstack logs {name}` says why",
                )

    def patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        """Change an object as ours."""
        ours = (f"--field-manager={FIELD_MANAGER}", "--type=merge", "-p", json.dumps(change))
        self._kubectl.run("patch", kind, name, "-n", self._namespace, *ours)

    def _scale(self, item: Mapping[str, Any], replicas: int, *, note: str | None) -> None:
        told = {"metadata": {"annotations": {REPLICAS_BEFORE: note}}, "spec": {"replicas": replicas}}
        self.patch(item["kind"].lower(), item["metadata"]["name"], told)

    def _end_pods(self, component: str) -> None:
        self._kubectl.run(
            "delete", "pod", "-n", self._namespace, "-l", f"app.kubernetes.io/component={component}",
            f"--grace-period={_GRACE}", "--wait=false", "--ignore-not-found",
        )  # fmt: skip

    def _wait_gone(self, component: str) -> None:
        until = time.monotonic() + _STOP_SECONDS
        where = ("pod", "-n", self._namespace, "-l", f"app.kubernetes.io/component={component}")
        while pods := self._kubectl.items(*where):
            if time.monotonic() > until:
                names = ", ".join(str(pod["metadata"]["name"]) for pod in pods[:5])
                raise Failure(
                    f"{names} did not end within {_STOP_SECONDS:g} s",
                    hint="where its machine is gone for good: "
                    f"kubectl delete pod --force -n {self._namespace} NAME, then this again",
                )
            time.sleep(_POLL)

    def _is_ready(self, stateful_set: Mapping[str, Any]) -> bool:
        """Of two controllers one that stands by is ready as well, and has read nothing yet."""
        if stateful_set["spec"].get("replicas", 1) <= 1:
            return bool(stateful_set.get("status", {}).get("readyReplicas", 0) >= 1)
        active = f"app.kubernetes.io/component={component_of(stateful_set)},{ACTIVE}=yes"
        return any(is_true(pod, "Ready") for pod in self._kubectl.items("pod", "-n", self._namespace, "-l", active))
