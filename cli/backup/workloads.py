"""What a restore stops and starts: a cluster's StatefulSets and Deployments, with how many pods each had."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from cli.change.owner import REPLICAS_BEFORE, is_stopped
from cli.errors import Failure
from cli.kubectl.client import FIELD_MANAGER, Kubectl, annotations_of, component_of, in_controller
from local.report import Step
from slurm.names import ACCOUNTING, CONTROLLER, ELASTIC, LOGIN, WORKER

STARTING = (ACCOUNTING, CONTROLLER, WORKER, LOGIN, ELASTIC)

_GRACE = 10
"""Seconds for pods of workers and login nodes to end. Their jobs have no slurmctld to report to."""

_STOP_SECONDS = 600.0
_START_SECONDS = 4 * 3600.0
"""As in components/accounting.py: slurmdbd converts a database of an older Slurm first."""

_MOST_ENDS = 5
"""Ends of a container one after the other, a matter of three minutes."""

_POLL = 1.0


def _replicas_of(item: Mapping[str, Any]) -> int:
    """How many pods a workload has, or had before it was stopped."""
    return int(item["spec"].get("replicas", 1)) or int(annotations_of(item).get(REPLICAS_BEFORE) or 0)


class Workloads:
    """Those of one cluster."""

    def __init__(self, kubectl: Kubectl, namespace: str) -> None:
        self._kubectl = kubectl
        self._place = ("-n", namespace)

    def objects(self) -> list[dict[str, Any]]:
        """As they are now."""
        return self._kubectl.items("statefulset,deployment", *self._place)

    def stop(self, components: Sequence[str]) -> None:
        """Stop one after the other, and wait until its pods are gone. Raises Failure."""
        there = self.objects()
        for component in components:
            for item in there:
                if component_of(item) == component and (replicas := _replicas_of(item)):
                    self._scale(item, 0, note=str(replicas))
            self._end_pods(component)

    def start(self, components: Collection[str]) -> None:
        """Let them have as many pods as they had. Raises Failure."""
        there = self.objects()
        for component in (each for each in STARTING if each in components):
            for item in there:
                if component_of(item) == component and is_stopped(item):
                    self._scale(item, _replicas_of(item), note=None)

    def wait_for_slurmctld(self, started: Collection[str], step: Step) -> None:
        """Wait until it answers, which it does after slurmdbd. Raises Failure, also where one ends again and again."""
        until = time.monotonic() + _START_SECONDS
        while in_controller(self._kubectl, self._place[1], "scontrol", "ping").returncode != 0:
            if time.monotonic() > until:
                raise Failure(f"slurmctld did not answer within {_START_SECONDS / 3600:g} hours")
            for component in {ACCOUNTING, CONTROLLER} & {*started}:
                self._refuse_ending(component)
            step.progress(0, 0, f"waiting for slurmctld (`slurmstack logs {CONTROLLER}` says for what it waits)")
            time.sleep(_POLL)

    def _refuse_ending(self, component: str) -> None:
        """Raise Failure where its containers will not start by waiting."""
        found = self._kubectl.items("pod", *self._place, "-l", f"app.kubernetes.io/component={component}")
        for container in (status for pod in found for status in pod.get("status", {}).get("containerStatuses", [])):
            if container.get("restartCount", 0) >= _MOST_ENDS:
                raise Failure(
                    f"all is put back, but {container['name']} of {component} ends again and again",
                    hint=f"`slurmstack logs {component}` says why",
                )

    def patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        """Change an object as ours."""
        ours = (f"--field-manager={FIELD_MANAGER}", "--type=merge", "-p", json.dumps(change))
        self._kubectl.run("patch", kind, name, *self._place, *ours)

    def _scale(self, item: Mapping[str, Any], replicas: int, *, note: str | None) -> None:
        told = {"metadata": {"annotations": {REPLICAS_BEFORE: note}}, "spec": {"replicas": replicas}}
        self.patch(item["kind"].lower(), item["metadata"]["name"], told)

    def _end_pods(self, component: str) -> None:
        """Wait until its pods are gone."""
        which = (*self._place, "-l", f"app.kubernetes.io/component={component}")
        if component in {WORKER, LOGIN}:
            soon = (f"--grace-period={_GRACE}", "--wait=false", "--ignore-not-found")
            self._kubectl.run("delete", "pod", *which, *soon)
        until = time.monotonic() + _STOP_SECONDS
        while pods := self._kubectl.items("pod", *which):
            if time.monotonic() > until:
                names = ", ".join(str(pod["metadata"]["name"]) for pod in pods[:5])
                raise Failure(
                    f"{names} did not end within {_STOP_SECONDS:g} s",
                    hint="where its machine is gone for good: "
                    f"kubectl delete pod --force -n {self._place[1]} NAME, then this again",
                )
            time.sleep(_POLL)
