"""Takes a cluster down in the order that hurts no job: workers first, then everything."""

from __future__ import annotations

import time

from cli.errors import Failure
from cli.kubectl import Kubectl
from config.cluster import ClusterConfig
from local.report import Report
from slurm.names import CONTROLLER_HOST

POLL = 0.5
"""Seconds between two looks at the cluster."""


def running_jobs(kubectl: Kubectl, namespace: str) -> list[str]:
    """Ids of running jobs; empty if slurmctld does not answer."""
    done = slurm(kubectl, namespace, "squeue", "--noheader", "--states=running,completing", "--format=%A")
    return done.split()


def slurm(kubectl: Kubectl, namespace: str, *command: str) -> str:
    """What a Slurm command prints in the controller's pod; empty if it fails."""
    done = kubectl.run("exec", "-n", namespace, CONTROLLER_HOST, "-c", "slurmctld", "--", *command, check=False)
    return done.stdout if done.returncode == 0 else ""


def destroy_cluster(
    kubectl: Kubectl, config: ClusterConfig, report: Report, *, kill_jobs: bool, workers_only: bool
) -> None:
    """Delete the worker pools and wait until their jobs have ended, then (unless `workers_only`) all the rest.

    Static volumes lose their object but not their data. Interrupted, it can be run again.
    """
    namespace = config.cluster.namespace
    if kill_jobs:
        with report.step("Cancelling all jobs"):
            slurm(kubectl, namespace, "scancel", "--state=running")
            slurm(kubectl, namespace, "scancel", "--state=pending")
    with report.step("Waiting for worker nodes to leave") as step:
        kubectl.run(
            "delete", "statefulset", "-n", namespace, "-l", "slurmstack/pool", "--ignore-not-found", "--wait=false"
        )
        while leaving := kubectl.items("pod", "-n", namespace, "-l", "app.kubernetes.io/component=worker"):
            names = ", ".join(sorted(str(pod["metadata"]["name"]) for pod in leaving)[:8])
            step.progress(0, 0, f"{len(leaving)} left ({names}), {len(running_jobs(kubectl, namespace))} running jobs")
            time.sleep(POLL)
    if workers_only:
        return
    with report.step(f"Deleting namespace {namespace}"):
        volumes = [
            str(item["metadata"]["name"])
            for item in kubectl.items("persistentvolume")
            if item["spec"].get("claimRef", {}).get("namespace") == namespace
            and item["metadata"].get("labels", {}).get("app.kubernetes.io/part-of") == "slurmstack"
        ]
        kubectl.run("delete", "namespace", namespace, "--ignore-not-found", "--wait=false")
        _await_gone(kubectl, "namespace", namespace)
        if volumes:
            kubectl.run("delete", "persistentvolume", *volumes, "--ignore-not-found", "--wait=false")
            for volume in volumes:
                _await_gone(kubectl, "persistentvolume", volume)
        labels = f"app.kubernetes.io/part-of=slurmstack,app.kubernetes.io/instance={namespace}"
        kubectl.run("delete", "clusterrolebinding,clusterrole", "-l", labels, "--ignore-not-found")


def _await_gone(kubectl: Kubectl, kind: str, name: str, *, timeout: float = 300) -> None:
    deadline = time.monotonic() + timeout
    while kubectl.items(kind, name):
        if time.monotonic() > deadline:
            raise Failure(
                f"{kind} {name} is still there after {timeout:.0f} s", hint=f"`kubectl describe {kind} {name}` says why"
            )
        time.sleep(POLL)
