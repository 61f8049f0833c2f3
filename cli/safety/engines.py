"""The list of jobs for each way to apply: what differs is only who says how the cluster is and what will change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from cli.against import Comparison
from cli.apply import Plan
from cli.changes import Change, changes
from cli.errors import Failure
from cli.kubectl import Kubectl
from cli.reach import keep_kubeconfig, reach
from cli.replacements import Recorded, ResourceChange, same
from cli.safety.changed import POOL_LABEL
from cli.safety.jobs import Asked, JobsTouched, ask, jobs_touched
from cli.stack import Stack
from config.nebius import NebiusCloud
from slurm.names import CONFIG_MAP, CONTROLLER


def of_kubectl(
    kubectl: Kubectl, planned: Plan, found: Sequence[Change] | None = None, asked: Asked | None = None
) -> JobsTouched:
    """What applying a plan does to the jobs.

    `found`: the plan's changes, where they are known. Otherwise the API server is asked for those of the worker pools.
    `asked`: where the queue has been asked for already.
    """
    if not planned.exists:
        return JobsTouched()
    there = [planned.live.get(at) for at in (("ConfigMap", CONFIG_MAP), ("StatefulSet", CONTROLLER))]
    pools = [item for item in planned.objects if POOL_LABEL in item.document["metadata"].get("labels", {})]
    return jobs_touched(
        kubectl,
        planned.namespace,
        old=[*planned.pools, *(item for item in there if item is not None)],
        new=[item.document for item in planned.objects],
        rolled=_rolled_by_kubectl(changes(kubectl, pools, [], known=planned.live) if found is None else found),
        asked=asked,
    )


def of_pulumi(stack: Stack, comparison: Comparison) -> JobsTouched:
    """What an update by the Pulumi engine does to the jobs. A cluster that cannot be asked stops no preview."""
    namespace = stack.config.cluster.namespace
    try:
        if isinstance(stack.config.cloud, NebiusCloud) and keep_kubeconfig(stack) is None:
            return JobsTouched()
        kubectl = reach(stack)
        with ThreadPoolExecutor() as pool:
            asked = ask(pool, kubectl, namespace)
            conf = pool.submit(kubectl.items, "configmap", CONFIG_MAP, "-n", namespace)
            old = kubectl.items("statefulset", "-n", namespace) + conf.result()
    except Failure as failure:
        return JobsTouched(unread=str(failure))
    return jobs_touched(
        kubectl,
        namespace,
        old=old,
        new=[item.inputs for item in comparison.resources if item.type.startswith("kubernetes:")],
        rolled=_rolled_by_pulumi(comparison.changes),
        asked=asked,
    )


def _rolled_by_kubectl(found: Iterable[Change]) -> set[str]:
    """StatefulSets with another pod template, by what the API server says they would become."""
    return {
        change.name
        for change in found
        if change.kind == "StatefulSet"
        and (change.action == "replace" or any(item.path.startswith("spec.template") for item in change.properties))
    }


def _rolled_by_pulumi(found: Iterable[ResourceChange]) -> set[str]:
    """The same by Pulumi's state."""
    return {
        str(change.resource.inputs["metadata"]["name"])
        for change in found
        if change.resource.type.endswith(":StatefulSet")
        and change.before is not None
        and change.action in {"update", "replace"}
        and (change.action == "replace" or not same(_template(change.before), _template(change.resource)))
    }


def _template(stateful_set: Recorded) -> object:
    return stateful_set.inputs["spec"].get("template")
