"""Before an update: whether the root that a stack names is one that it can use."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping
from typing import Any

from cli.access.reach import reach
from cli.backup.jobs import answer_in
from cli.change.in_place import jail_root_of, release_of
from cli.change.plan import Plan
from cli.engine.plan import EnginePlan
from cli.errors import Refused
from cli.jail.roots import POPULATE, ask, misfit, refuse_removed
from cli.kubectl.client import Kubectl
from cli.stack import Stack
from config.cluster import ClusterConfig
from local.report import PlainReport, Report
from slurm.names import LOGIN


def refuse_root_of_plan(kubectl: Kubectl, config: ClusterConfig, planned: Plan, report: Report) -> None:
    """Before kubectl applies. Raises Refused."""
    objects = {(item.kind, item.name): item.document for item in planned.objects}
    populates = [
        item
        for there in (planned.inside, objects)
        for (kind, name), item in there.items()
        if kind == "Job" and name.startswith(POPULATE)
    ]
    # With an image that is there already: the new one may not be built yet, or not exist.
    populate = _with_image_of(populates[-1], populates[0])
    login = planned.live.get(("StatefulSet", LOGIN)), objects["StatefulSet", LOGIN]
    refuse_misfit(lambda: kubectl, config, login, populate, report)


def refuse_root_of_engine(stack: Stack, planned: EnginePlan) -> None:
    """Before the engine applies. Raises Refused."""
    jobs = [item for item in planned.resources if item.kind == "Job" and item.title.startswith(POPULATE)]
    filled = [
        item.before
        for item in planned.changes
        if item.kind == "Job" and item.before and item.before.title.startswith(POPULATE)
    ]
    logins = [item for item in planned.changes if (item.kind, item.name) == ("StatefulSet", LOGIN)]
    for change in logins:
        was = None if change.before is None else change.before.inputs
        login = was, change.resource.inputs
        if change.action != "delete" and jobs:
            populate = _with_image_of(jobs[0].inputs, filled[0].inputs if filled else jobs[0].inputs)
            refuse_misfit(lambda: reach(stack), stack.config, login, populate, PlainReport(sys.stderr))


def _with_image_of(job: Mapping[str, Any], other: Mapping[str, Any]) -> Mapping[str, Any]:
    made: dict[str, Any] = copy.deepcopy(dict(job))
    made["spec"]["template"]["spec"]["containers"][0]["image"] = other["spec"]["template"]["spec"]["containers"][0][
        "image"
    ]
    return made


def refuse_misfit(
    kubectl: Callable[[], Kubectl],
    config: ClusterConfig,
    login: tuple[Mapping[str, Any] | None, Mapping[str, Any]],
    populate: Mapping[str, Any],
    report: Report,
) -> None:
    """Raise Refused if the root is there with another release of Slurm, or is to be filled from one that is not whole.

    Or while a Job removes one of the two. Only the volume knows, so it is looked at where root or release change.
    `login`: the login nodes' StatefulSet as it is, None if there is none, and as it will be. `populate`: the Job that
    fills the root.
    """
    was, will = login
    if was is None or (jail_root_of(was), release_of(was)) == (jail_root_of(will), release_of(will)):
        return
    cluster = kubectl()
    refuse_removed(cluster, config)
    reason = misfit(config, answer_in(ask(cluster, config.cluster.namespace, populate, report, "list")))
    if reason:
        raise Refused(reason)
