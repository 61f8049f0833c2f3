"""What each way to apply is judged by: what differs is only who says how the cluster is and what will change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future

from cli.access.reach import reach, reach_if_made
from cli.change.apply import Plan, effects_there
from cli.change.change import Change
from cli.change.comparison import Comparison
from cli.change.diff import changes
from cli.change.effects import Effect
from cli.change.jobs import JobsTouched, Pods, jobs_touched
from cli.change.owner import refuse_foreign, refuse_other_stack
from cli.change.queue import Queue
from cli.errors import Failure
from cli.kubectl.client import Kubectl
from cli.program.values import Resource
from cli.stack import Stack
from config.nebius.cloud import NebiusCloud
from slurm.names import CONFIG_MAP, CONTROLLER, POOL_LABEL


def of_kubectl(
    kubectl: Kubectl,
    planned: Plan,
    found: Sequence[Change] | None = None,
    asked: Future[tuple[Queue, Pods]] | None = None,
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
        rolled=_rolled(changes(kubectl, pools, [], known=planned.live) if found is None else found),
        asked=asked,
    )


def of_pulumi(stack: Stack, found: Iterable[Change], resources: Iterable[Resource]) -> JobsTouched:
    """What an update by the Pulumi engine does to the jobs. A cluster that cannot be asked stops no preview.

    `resources`: all that are to be.
    """
    namespace = stack.config.cluster.namespace
    try:
        kubectl = reach_if_made(stack)
        if kubectl is None:
            return JobsTouched()
        old = [
            *kubectl.items("statefulset,podtemplate", "-n", namespace),
            *kubectl.items("configmap", CONFIG_MAP, "-n", namespace),
        ]
    except Failure as failure:
        return JobsTouched(unread=str(failure))
    return jobs_touched(
        kubectl,
        namespace,
        old=old,
        new=[item.inputs for item in resources if item.type.startswith("kubernetes:")],
        rolled=_rolled(found),
    )


def refuse_foreign_namespace(stack: Stack, *, adopt: bool = False) -> None:
    """Raise Failure if the namespace in a cluster that is there belongs to something else.

    `adopt`: a stack of another name may have made it.
    """
    if not isinstance(stack.config.cloud, NebiusCloud):
        there = next(iter(reach(stack).items("namespace", stack.config.cluster.namespace)), None)
        refuse_foreign(there)
        if not adopt:
            refuse_other_stack(there, stack.name)


def expected_effects(stack: Stack, comparison: Comparison) -> Iterator[Effect]:
    """What an update by the engine costs, by Pulumi's state and, where there is a cluster already, as that is."""
    yield from comparison.effects
    if not isinstance(stack.config.cloud, NebiusCloud):
        told = {(effect.kind, effect.name) for effect in comparison.effects}
        there = effects_there(reach(stack), stack.config, comparison.recording)
        yield from (effect for effect in there if (effect.kind, effect.name) not in told)


def _rolled(found: Iterable[Change]) -> set[str]:
    """StatefulSets with another pod template."""
    return {
        change.name
        for change in found
        if change.kind == "StatefulSet"
        and change.before is not None
        and (change.action == "replace" or any(item.path.startswith("spec.template") for item in change.properties))
    }
