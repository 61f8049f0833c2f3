"""The policy in `preview` and `up`: what would change in Slurm, by a look at Slurm itself."""

from __future__ import annotations

import json
from dataclasses import dataclass

from cli.access.reach import reach_if_made
from cli.change.rollout import worked_jobs
from cli.errors import Failure
from cli.kubectl.client import (
    NO_SLURMDBD,
    SILENT_SLURMDBD,
    Kubectl,
    if_slurmdbd_answers,
    is_true,
    message,
)
from cli.stack import Stack
from config.cluster import ClusterConfig
from slurm.names import ACCOUNTING, ACCOUNTING_HOST
from slurm.policy import COMPONENT, environment, policy_document

_PROGRAM = "/usr/libexec/slurmstack/policy"


@dataclass(frozen=True, kw_only=True)
class PolicyPlan:
    """What an apply would change in Slurm."""

    changes: tuple[str, ...]
    notes: tuple[str, ...]
    """What is left as it is, and why there is no comparison if there is none."""


def planned_policy(kubectl: Kubectl | None, config: ClusterConfig) -> PolicyPlan | None:
    """Compare the stack file with Slurm. None without accounting, and where slurmdbd does not run yet."""
    if kubectl is None or not config.accounting.enabled:
        return None
    namespace = config.cluster.namespace
    pods = kubectl.items("pod", ACCOUNTING_HOST, "-n", namespace)
    if not pods or not is_true(pods[0], "Ready"):
        return None
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
        return planned_policy(reach_if_made(stack), stack.config)
    except Failure as failure:
        return _not_compared(str(failure))


def _not_compared(why: str) -> PolicyPlan:
    return PolicyPlan(changes=(), notes=(f"! the policy in force cannot be compared: {why}",))


def run_again(kubectl: Kubectl, config: ClusterConfig, planned: PolicyPlan | None) -> None:
    """Delete the job that has done its work where Slurm has something else now: the update makes and awaits it anew."""
    if planned is None or not planned.changes:
        return
    ours = ("-n", config.cluster.namespace, "-l", f"app.kubernetes.io/component={COMPONENT}")
    jobs = kubectl.items("job", *ours)
    if any(is_true(job, "Complete") for job in jobs) or worked_jobs(kubectl, config.cluster.namespace, jobs):
        kubectl.run("delete", "job", *ours, "--cascade=foreground", "--ignore-not-found")
