"""The policy in `preview` and `up`: what would change in Slurm, by a look at Slurm itself, and what the job did."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli.access.reach import reach_if_made
from cli.change.rollout import worked_jobs
from cli.errors import Failure
from cli.kubectl.client import (
    NO_SLURMDBD,
    SILENT_SLURMDBD,
    Kubectl,
    component_of,
    if_slurmdbd_answers,
    is_true,
    message,
)
from cli.stack import Stack
from cli.text import print_lines, say
from config.cluster import ClusterConfig
from images.common.policy.document import DEFAULT_QOS, State, load, untouched_default_qos
from images.common.policy.plan import plan
from slurm.names import ACCOUNTING, ACCOUNTING_HOST
from slurm.policy import COMPONENT, environment, policy_document

_JOBS = f"app.kubernetes.io/component={COMPONENT}"
"""Selector of the Jobs that bring Slurm in line with the policy."""

_PROGRAM = "/usr/libexec/slurmstack/policy"


@dataclass(frozen=True, kw_only=True)
class PolicyPlan:
    """What an apply would change in Slurm."""

    changes: tuple[str, ...]
    notes: tuple[str, ...]
    """What is left as it is, and why there is no comparison if there is none."""
    compared: bool = True
    """Whether Slurm itself was asked."""


def planned_policy(kubectl: Kubectl | None, config: ClusterConfig) -> PolicyPlan | None:
    """Compare the stack file with Slurm, or with nothing where slurmdbd does not run yet. None without accounting."""
    if not config.accounting.enabled:
        return None
    namespace = config.cluster.namespace
    pods = [] if kubectl is None else kubectl.items("pod", ACCOUNTING_HOST, "-n", namespace)
    if kubectl is None or not pods or not is_true(pods[0], "Ready"):
        return from_nothing(config)
    variables = [f"{name}={value}" for name, value in environment(config).items()]
    command = ["env", *variables, _PROGRAM, "--plan", "--json", "-"]
    done = kubectl.run(
        "exec", "-i", "-n", namespace, ACCOUNTING_HOST, "-c", ACCOUNTING, "--", *if_slurmdbd_answers(command),
        stdin=policy_document(config), check=False,
    )  # fmt: skip
    if done.returncode == NO_SLURMDBD:
        return _not_compared(SILENT_SLURMDBD)
    try:
        answer = json.loads(done.stdout)
        return PolicyPlan(changes=tuple(answer["changes"]), notes=tuple(answer["notes"]))
    except (ValueError, KeyError, TypeError):
        return _not_compared(message(done.stderr) or "no answer")


def policy_of(stack: Stack) -> PolicyPlan | None:
    """The same for a stack whose cluster may not be there, or may not answer: that stops no preview."""
    if not stack.config.accounting.enabled:
        return None
    try:
        kubectl = reach_if_made(stack)
    except Failure as failure:
        return _not_compared(str(failure))
    return planned_policy(kubectl, stack.config)


def _not_compared(why: str) -> PolicyPlan:
    return PolicyPlan(changes=(), notes=(f"! the policy in force cannot be compared: {why}",), compared=False)


def from_nothing(config: ClusterConfig) -> PolicyPlan:
    """What a first start makes."""
    empty = State(qos={(DEFAULT_QOS,): untouched_default_qos()})
    wanted = load(policy_document(config)).wanted
    planned = plan(empty, wanted, prune=False, now=time.time())
    return PolicyPlan(changes=tuple(planned.lines), notes=planned.notes, compared=False)


def policy_jobs(kubectl: Kubectl, namespace: str) -> list[dict[str, Any]]:
    """The jobs that bring Slurm in line with the policy, ended ones too."""
    return kubectl.items("job", "-n", namespace, "-l", _JOBS)


def jobs_among(objects: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same, where the namespace's objects have been read already."""
    return [item for item in objects if item["kind"] == "Job" and component_of(item) == COMPONENT]


def finished_job(kubectl: Kubectl, namespace: str, jobs: Sequence[Mapping[str, Any]]) -> str:
    """The uid of the policy job that has done its work; empty if there is none."""
    done = {job["metadata"]["uid"] for job in jobs if is_true(job, "Complete")} or worked_jobs(kubectl, namespace, jobs)
    return next((uid for job in jobs if (uid := str(job["metadata"]["uid"])) in done), "")


def run_again(
    kubectl: Kubectl, config: ClusterConfig, planned: PolicyPlan | None, jobs: Sequence[Mapping[str, Any]]
) -> str:
    """Delete the job that has done its work where Slurm has something else now: the update makes and awaits it anew.

    `jobs`: the policy jobs that are there. Returns the uid of the finished one that stays, for `print_done`.
    """
    namespace = config.cluster.namespace
    finished = finished_job(kubectl, namespace, jobs) if planned is not None else ""
    if planned is None or not finished or not planned.compared or not planned.changes:
        return finished
    kubectl.run("delete", "job", "-n", namespace, "-l", _JOBS, "--cascade=foreground", "--ignore-not-found")
    return ""


def prepare(stack: Stack, planned: PolicyPlan | None) -> str:
    """The same before an update by the Pulumi engine, which may only now make the cluster."""
    kubectl = None if planned is None else reach_if_made(stack)
    if kubectl is None:
        return ""
    return run_again(kubectl, stack.config, planned, policy_jobs(kubectl, stack.config.cluster.namespace))


def print_done(kubectl: Kubectl, config: ClusterConfig, before: str) -> None:
    """Print what the policy job did, if it ran since `before` was the uid of the finished one."""
    namespace = config.cluster.namespace
    uid = finished_job(kubectl, namespace, policy_jobs(kubectl, namespace)) if config.accounting.enabled else ""
    if not uid or uid == before:
        return
    selector = f"batch.kubernetes.io/controller-uid={uid}"
    done = kubectl.run("logs", "-n", namespace, "-l", selector, "-c", COMPONENT, "--tail=-1", check=False)
    said = [line.removeprefix("policy: ") for line in done.stdout.splitlines() if line.startswith("policy: ")]
    say("policy in Slurm:")
    print_lines([line for line in said if line[:2] in {"+ ", "~ ", "- ", "! "}] or said[-1:])
