"""Jobs that a stack update waits for, so that what went wrong in the cluster fails the update with a message."""

from __future__ import annotations

from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from components.clouds.base import Placement
from components.kit.context import FILLING, Scope, waits
from components.kit.workload import pod_template
from slurm.names import content_name

REFUSED = 2
"""Exit status of our programs for what trying again cannot mend: the job fails at once. All others are tried again."""


def named_by_content(opts: pulumi.ResourceOptions, *after: pulumi.Resource) -> pulumi.ResourceOptions:
    """Options of an object whose name comes from its content, made `after` others.

    The old one is deleted first: after an update that failed it would still be there, and to go back to what was before
    would find its name taken ("already exists", measured).
    """
    return opts.merge(pulumi.ResourceOptions(delete_before_replace=True, depends_on=list(after)))


def create_job(
    name: str,
    metadata: k8s.meta.v1.ObjectMetaArgs,
    spec: k8s.batch.v1.JobSpecArgs,
    opts: pulumi.ResourceOptions,
    *after: pulumi.Resource,
) -> k8s.batch.v1.Job:
    """A job that an update waits for, made `after` others; its name is completed from all that its specification says.

    The template of a job can never change, so another specification is another job. One that has failed is made anew by
    the next update. Without a deadline of its own it may wait for the jail to be filled.
    """
    metadata.name = pulumi.Output.all(metadata.name, spec).apply(lambda both: content_name(both[0], _plain(both[1])))
    metadata.annotations = {"pulumi.com/replaceUnready": "true"}
    deadline = spec.active_deadline_seconds
    limit = FILLING if deadline is None else f"{deadline}s"
    return k8s.batch.v1.Job(name, metadata=metadata, spec=spec, opts=named_by_content(opts, *after).merge(waits(limit)))


def _plain(value: Any) -> Any:
    """A specification as data; what it leaves out is left out."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    return value if value is None or isinstance(value, str | int | float) else _plain(vars(value))


def job_spec(
    scope: Scope,
    component: str,
    placement: Placement,
    container: k8s.core.v1.ContainerArgs,
    volumes: list[k8s.core.v1.VolumeArgs] | None = None,
    *,
    sidecars: list[k8s.core.v1.ContainerArgs] | None = None,
    before: list[k8s.core.v1.ContainerArgs] | None = None,
    deadline: int | None = None,
) -> k8s.batch.v1.JobSpecArgs:
    """A job of one container that is tried until it succeeds, but only once if it says that trying again is useless.

    All other failures are ignored, rather than this one singled out by the rule `FailJob`: Pulumi knows a job as failed
    only by its backoff limit or its deadline, and waited ten minutes for one that a rule had failed (provider 4.32).

    The last lines of a failed container's log become its termination message, which `pulumi up` prints. `sidecars` run
    beside it, `before` are containers that have to succeed first. `deadline` is in seconds.
    """
    steps = [*(before or []), container]
    for step in steps:
        step.termination_message_policy = "FallbackToLogsOnError"
    disrupted = k8s.batch.v1.PodFailurePolicyRuleArgs(
        action="Ignore",
        on_pod_conditions=[
            k8s.batch.v1.PodFailurePolicyOnPodConditionsPatternArgs(type="DisruptionTarget", status="True")
        ],
    )
    # A sidecar is ended at the end, and its status says nothing about the work.
    counted = [step.name for step in steps] if sidecars or before else [None]
    return k8s.batch.v1.JobSpecArgs(
        backoff_limit=0,
        active_deadline_seconds=deadline,
        pod_failure_policy=k8s.batch.v1.PodFailurePolicyArgs(
            rules=[disrupted, *(_unless_refused(name) for name in counted)]
        ),
        template=pod_template(
            scope,
            scope.labels(component),
            placement,
            k8s.core.v1.PodSpecArgs(
                restart_policy="Never",
                init_containers=[*(sidecars or []), *(before or [])] or None,
                containers=[container],
                volumes=volumes,
            ),
            stays=True,
        ),
    )


def _unless_refused(container: pulumi.Input[str] | None) -> k8s.batch.v1.PodFailurePolicyRuleArgs:
    """A failure with any other status of this container, or of whichever there is, does not count."""
    return k8s.batch.v1.PodFailurePolicyRuleArgs(
        action="Ignore",
        on_exit_codes=k8s.batch.v1.PodFailurePolicyOnExitCodesRequirementArgs(
            container_name=container, operator="NotIn", values=[REFUSED]
        ),
    )
