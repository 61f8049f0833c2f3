"""What makes pods and leads to them: StatefulSets, Deployments, Services, budgets, Jobs that an update waits for."""

from __future__ import annotations

from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from components.kit.context import FILLING, STARTING, Scope, waits
from components.kit.pods import pod_template
from slurm.names import NODES_SERVICE, content_name

REFUSED = 2
"""Exit status of our programs for what trying again cannot mend: the job fails at once. All others are tried again."""


def stateful_set(
    name: str,
    metadata: k8s.meta.v1.ObjectMetaArgs,
    selector: k8s.meta.v1.LabelSelectorArgs,
    template: k8s.core.v1.PodTemplateSpecArgs,
    opts: pulumi.ResourceOptions,
    *,
    replicas: int | None = None,
    ordered: int = 1,
    rolled: bool = False,
) -> k8s.apps.v1.StatefulSet:
    """Pods with names and hosts that stay.

    `replicas`: of equal ones, which start together; None: `ordered` ones, each of which waits for the one before.
    `rolled`: a program replaces pods of an older template (images/elastic/decide.py), and not Kubernetes.
    """
    return k8s.apps.v1.StatefulSet(
        f"{name}-pods",
        metadata=metadata,
        spec=k8s.apps.v1.StatefulSetSpecArgs(
            replicas=ordered if replicas is None else replicas,
            service_name=NODES_SERVICE,
            pod_management_policy=None if replicas is None else "Parallel",
            selector=selector,
            template=template,
            update_strategy=k8s.apps.v1.StatefulSetUpdateStrategyArgs(type="OnDelete") if rolled else None,
        ),
        opts=opts,
    )


def deployment(
    name: str,
    scope: Scope,
    component: str,
    template: k8s.core.v1.PodTemplateSpecArgs,
    opts: pulumi.ResourceOptions,
    *,
    replicas: int = 1,
    strategy: k8s.apps.v1.DeploymentStrategyArgs | None = None,
) -> k8s.apps.v1.Deployment:
    """Pods of a component that are all alike, called as it is. An update waits until they are ready."""
    return k8s.apps.v1.Deployment(
        f"{name}-pods",
        metadata=scope.metadata(component, component),
        spec=k8s.apps.v1.DeploymentSpecArgs(
            replicas=replicas, strategy=strategy, selector=scope.label_selector(component), template=template
        ),
        opts=scope.after_trial(opts).merge(waits(STARTING)),
    )


def never_two() -> k8s.apps.v1.DeploymentStrategyArgs:
    """The old pod of a Deployment has ended before the new one begins."""
    return k8s.apps.v1.DeploymentStrategyArgs(type="Recreate")


def service(
    name: str,
    scope: Scope,
    component: str,
    ports: dict[str, int],
    opts: pulumi.ResourceOptions,
    *,
    called: str | None = None,
    only: dict[str, str] | None = None,
    unready: bool | None = None,
) -> k8s.core.v1.Service:
    """An address inside the cluster for a component, which survives the pods behind it.

    `called`: where it is not as the component. `only`: labels of those of its pods that it leads to. `unready`: to pods
    that are not ready, too.
    """
    return k8s.core.v1.Service(
        name,
        metadata=scope.metadata(called or component, component),
        spec=k8s.core.v1.ServiceSpecArgs(
            type="ClusterIP",
            selector={**scope.selector(component), **(only or {})},
            publish_not_ready_addresses=unready,
            ports=[service_port(name, port) for name, port in ports.items()],
        ),
        opts=opts,
    )


def service_port(name: str, port: int, *, node_port: int | None = None) -> k8s.core.v1.ServicePortArgs:
    """A port of a Service, which is the same as the pods'."""
    return k8s.core.v1.ServicePortArgs(name=name, port=port, target_port=port, node_port=node_port)


def disruption_budget(name: str, scope: Scope, component: str, opts: pulumi.ResourceOptions) -> None:
    """Keeps two pods of a component, which have a Service between them, from being evicted at the same time.

    Those that are ill hold no drain up. Only where what makes the pods has a scale:
    docs/decisions/nodes-and-jobs.md, 0072.
    """
    k8s.policy.v1.PodDisruptionBudget(
        f"{name}-budget",
        metadata=scope.metadata(component, component),
        spec=k8s.policy.v1.PodDisruptionBudgetSpecArgs(
            max_unavailable=1,
            unhealthy_pod_eviction_policy="AlwaysAllow",
            selector=scope.label_selector(component),
        ),
        opts=opts,
    )


def rather_apart(selector: k8s.meta.v1.LabelSelectorArgs) -> k8s.core.v1.AffinityArgs:
    """Rather not on a machine with such a pod."""
    term = k8s.core.v1.PodAffinityTermArgs(label_selector=selector, topology_key="kubernetes.io/hostname")
    wish = k8s.core.v1.WeightedPodAffinityTermArgs(weight=100, pod_affinity_term=term)
    return k8s.core.v1.AffinityArgs(
        pod_anti_affinity=k8s.core.v1.PodAntiAffinityArgs(preferred_during_scheduling_ignored_during_execution=[wish])
    )


def spread(selector: k8s.meta.v1.LabelSelectorArgs) -> list[k8s.core.v1.TopologySpreadConstraintArgs]:
    """Such pods go to different machines as far as there are any."""
    constraint = k8s.core.v1.TopologySpreadConstraintArgs(
        max_skew=1,
        topology_key="kubernetes.io/hostname",
        when_unsatisfiable="ScheduleAnyway",
        label_selector=selector,
    )
    return [constraint]


# Jobs. What went wrong in the cluster fails the update with a message.


def named_by_content(opts: pulumi.ResourceOptions, *after: pulumi.Resource) -> pulumi.ResourceOptions:
    """Options of an object whose name comes from its content, made `after` others.

    The old one is deleted first: after an update that failed it would still be there, and to go back to what was before
    would find its name taken ("already exists", measured).
    """
    return opts.merge(pulumi.ResourceOptions(delete_before_replace=True, depends_on=list(after)))


def create_job(
    name: str,
    scope: Scope,
    component: str,
    container: k8s.core.v1.ContainerArgs,
    opts: pulumi.ResourceOptions,
    *after: pulumi.Resource,
    called: str | None = None,
    volumes: list[k8s.core.v1.VolumeArgs] | None = None,
    sidecars: list[k8s.core.v1.ContainerArgs] | None = None,
    before: list[k8s.core.v1.ContainerArgs] | None = None,
    deadline: int | None = None,
    once: bool = False,
) -> k8s.batch.v1.Job:
    """A job of one container that an update waits for, made `after` others.

    Its name begins as it is `called`, else as its component, and is completed from all that its specification says: the
    template of a job can never change, so another specification is another job. One that has failed is made anew by the
    next update. `sidecars` run beside it, `before` are containers that have to succeed first. `deadline` is in seconds;
    without one it may wait for the jail to be filled. `once`: whatever fails, it is not tried again.
    """
    spec = _job_spec(scope, component, container, volumes, sidecars=sidecars or [], before=before or [], once=once)
    spec.active_deadline_seconds = deadline
    metadata = scope.metadata(called or component, component)
    metadata.name = pulumi.Output.all(metadata.name, spec).apply(lambda both: content_name(both[0], _plain(both[1])))
    metadata.annotations = {"pulumi.com/replaceUnready": "true"}
    limit = FILLING if deadline is None else f"{deadline}s"
    return k8s.batch.v1.Job(
        name,
        metadata=metadata,
        spec=spec,
        opts=named_by_content(scope.after_trial(opts), *after).merge(waits(limit)),
    )


def _plain(value: Any) -> Any:
    """A specification as data; what it leaves out is left out."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    return value if value is None or isinstance(value, str | int | float) else _plain(vars(value))


def _job_spec(
    scope: Scope,
    component: str,
    container: k8s.core.v1.ContainerArgs,
    volumes: list[k8s.core.v1.VolumeArgs] | None,
    *,
    sidecars: list[k8s.core.v1.ContainerArgs],
    before: list[k8s.core.v1.ContainerArgs],
    once: bool,
) -> k8s.batch.v1.JobSpecArgs:
    """It is tried until it succeeds, but only once if it says that trying again is useless.

    All other failures are ignored, rather than this one singled out by the rule `FailJob`: Pulumi knows a job as failed
    only by its backoff limit or its deadline, and waited ten minutes for one that a rule had failed (provider 4.32).

    The last lines of a failed container's log become its termination message, which `pulumi up` prints.
    """
    steps = [*before, container]
    for step in steps:
        step.termination_message_policy = "FallbackToLogsOnError"
    disrupted = k8s.batch.v1.PodFailurePolicyRuleArgs(
        action="Ignore",
        on_pod_conditions=[
            k8s.batch.v1.PodFailurePolicyOnPodConditionsPatternArgs(type="DisruptionTarget", status="True")
        ],
    )
    # A sidecar is ended at the end, and its status says nothing about the work.
    counted = [] if once else [step.name for step in steps] if sidecars or before else [None]
    pod = k8s.core.v1.PodSpecArgs(
        restart_policy="Never", init_containers=[*sidecars, *before] or None, containers=[container], volumes=volumes
    )
    return k8s.batch.v1.JobSpecArgs(
        backoff_limit=0,
        pod_failure_policy=k8s.batch.v1.PodFailurePolicyArgs(
            rules=[disrupted, *(_unless_refused(name) for name in counted)]
        ),
        template=pod_template(scope, component, scope.cloud.placement("system"), pod, stays=True),
    )


def _unless_refused(container: pulumi.Input[str] | None) -> k8s.batch.v1.PodFailurePolicyRuleArgs:
    """A failure with any other status of this container, or of whichever there is, does not count."""
    return k8s.batch.v1.PodFailurePolicyRuleArgs(
        action="Ignore",
        on_exit_codes=k8s.batch.v1.PodFailurePolicyOnExitCodesRequirementArgs(
            container_name=container, operator="NotIn", values=[REFUSED]
        ),
    )
