"""Takes a cluster down in the order that hurts no job: workers first, then everything."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from cli.errors import Failure
from cli.kubectl.apply import RIGHTS_OUTSIDE, cluster_labels
from cli.kubectl.client import Kubectl, complaint, in_controller, slurm
from config.cluster import ClusterConfig
from local.report import Report

POLL = 0.5
"""Seconds between two looks at the cluster."""

WORKLOADS = ("statefulset", "deployment", "daemonset", "job", "podtemplate")
"""Kinds whose objects have pods."""

SESSIONS_END = 30
"""Seconds that open sessions have at the end of the whole cluster."""

PATIENCE = 10
"""Seconds that slurmctld may take to show its queue: scancel alone would try for many minutes."""


def running_jobs(kubectl: Kubectl, namespace: str) -> list[str]:
    """Ids of running jobs; empty if slurmctld does not answer."""
    done = slurm(kubectl, namespace, "squeue", "--noheader", "--states=running,suspended,completing", "--format=%A")
    return done.split()


def destroy_cluster(
    kubectl: Kubectl, config: ClusterConfig, report: Report, *, kill_jobs: bool, pods_only: bool
) -> None:
    """Delete the worker pools and wait until their jobs have ended, then (unless `pods_only`) all the rest.

    With `pods_only` nothing runs on return, and whoever deletes the rest has nothing to wait for. Static volumes lose
    their object but not their data. Interrupted, it can be run again.
    """
    namespace = config.cluster.namespace
    if kill_jobs:
        _cancel_all(kubectl, namespace, report)
    with report.step("Waiting for worker nodes to leave") as step:
        _delete_workloads(kubectl, namespace, "slurmstack/pool")
        while leaving := kubectl.items("pod", "-n", namespace, "-l", "app.kubernetes.io/component=worker"):
            step.progress(0, 0, f"{_names(leaving)}, {len(running_jobs(kubectl, namespace))} running jobs")
            time.sleep(POLL)
    if config.login.is_elastic:
        _end_sessions(kubectl, namespace)
    if pods_only:
        with report.step("Ending all other pods") as step:
            _delete_workloads(kubectl, namespace, cluster_labels(namespace))
            while ending := kubectl.items("pod", "-n", namespace, "-l", cluster_labels(namespace)):
                step.progress(0, 0, _names(ending))
                time.sleep(POLL)
    else:
        with report.step(f"Deleting namespace {namespace}"):
            _delete_namespace(kubectl, namespace)


def _end_sessions(kubectl: Kubectl, namespace: str) -> None:
    """Let the login nodes end although somebody is logged in: all else would wait for these sessions."""
    login = ("-n", namespace, "-l", "app.kubernetes.io/component=login", "--ignore-not-found", "--wait=false")
    kubectl.run("delete", "statefulset", *login)
    kubectl.run("delete", "pod", *login, f"--grace-period={SESSIONS_END}")


def _cancel_all(kubectl: Kubectl, namespace: str, report: Report) -> None:
    """Cancel all jobs; where slurmctld does not answer, say so."""
    with report.step("Cancelling all jobs"):
        asked = in_controller(kubectl, namespace, "squeue", "--noheader", "--format=%A", seconds=PATIENCE)
        if asked.returncode == 0:
            for state in ("pending", "running", "suspended"):  # those that wait first, or they start where others end
                in_controller(kubectl, namespace, "scancel", f"--state={state}", seconds=600)
    if asked.returncode != 0:
        report.info(
            f"no job was cancelled, for slurmctld does not answer ({complaint(asked)}): "
            "nodes without a job leave all the same, others wait for theirs as long as drain_timeout allows"
        )


def _names(pods: Sequence[Mapping[str, Any]]) -> str:
    return f"{len(pods)} left ({', '.join(sorted(str(pod['metadata']['name']) for pod in pods)[:8])})"


def _delete_workloads(kubectl: Kubectl, namespace: str, labels: str) -> None:
    """Let everything go that has pods. Returns before they have ended."""
    kubectl.run(
        "delete",
        ",".join(WORKLOADS),
        "-n",
        namespace,
        "-l",
        labels,
        "--ignore-not-found",
        "--wait=false",
    )


def _delete_namespace(kubectl: Kubectl, namespace: str) -> None:
    """Delete the cluster's objects, those in no namespace first: once the namespace has gone, others may make anew."""
    present = kubectl.items("namespace", namespace)
    volumes = [
        item
        for item in kubectl.items("persistentvolume")
        if item["spec"].get("claimRef", {}).get("namespace") == namespace
        and item["metadata"].get("labels", {}).get("app.kubernetes.io/part-of") == "slurmstack"
    ]
    # Kubernetes comes to the namespace after five seconds, and to one in which it then finds pods or claims again only
    # after five more, or after half of the pods' longest grace period.
    _delete_workloads(kubectl, namespace, cluster_labels(namespace))
    claims = ("-n", namespace, "-l", cluster_labels(namespace))
    kubectl.run("delete", "persistentvolumeclaim", *claims, "--ignore-not-found", "--wait=false")
    if volumes:  # they stay until their claims have gone
        names = [str(item["metadata"]["name"]) for item in volumes]
        kubectl.run("delete", "persistentvolume", *names, "--ignore-not-found", "--wait=false")
    kubectl.run("delete", RIGHTS_OUTSIDE, "-l", cluster_labels(namespace), "--ignore-not-found")
    kubectl.run("delete", "namespace", namespace, "--ignore-not-found", "--wait=false")
    for item in (*present, *volumes):
        _await_gone(kubectl, item)


def _await_gone(kubectl: Kubectl, item: Mapping[str, Any], *, timeout: float = 300) -> None:
    kind, name, uid = item["kind"].lower(), item["metadata"]["name"], item["metadata"]["uid"]
    deadline = time.monotonic() + timeout
    while any(found["metadata"]["uid"] == uid for found in kubectl.items(kind, name)):
        if time.monotonic() > deadline:
            raise Failure(
                f"{kind} {name} is still there after {timeout:.0f} s", hint=f"`kubectl describe {kind} {name}` says why"
            )
        time.sleep(POLL)
