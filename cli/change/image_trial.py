"""Images that a running control plane is to get are tried first, and then given to one of its daemons at a time."""

from __future__ import annotations

from cli.change.apply import is_upgrade, upgraded_first
from cli.change.in_place import image_of
from cli.change.plan import Plan, as_member, is_member
from cli.kubectl.client import component_of, is_true
from cli.program.manifests import Manifest
from slurm.names import ACCOUNTING, CONTROLLER, DATABASE, IMAGES

NOTHING_TOUCHED = (
    "nothing runs with these images, and what runs goes on. Correct `images` in the stack file, or push what it names "
    "(docs/images.md), and run this again"
)

ONE_STOPPED = "the rest runs as it did. The stack file of before, applied with `up`, is the way back"
"""Where a daemon does not come up with an image that could be started."""


def image_trial(planned: Plan) -> list[Manifest]:
    """The job that tries the images, where a control plane runs that may get them; else nothing."""
    if not _ready(planned, CONTROLLER, ACCOUNTING, DATABASE):
        return []
    jobs = [item for item in planned.objects if item.kind == "Job" and component_of(item.document) == IMAGES]
    return [as_member(job, planned.namespace) for job in jobs if not is_true(planned.live.get(job.key, {}), "Complete")]


def one_by_one(planned: Plan) -> list[list[Manifest]]:
    """What is sent and waited for before all else, step by step: each daemon that gets another image.

    slurmdbd comes first, so that MariaDB converts no data before an upgrade of Slurm has begun well. slurmctld of
    another release comes later, with its configuration. Nothing where the database is down, for which slurmdbd waits.
    """
    if not _ready(planned, DATABASE):
        return []
    steps = [
        upgraded_first(planned) or _with_another_image(planned, ACCOUNTING),
        _with_another_image(planned, DATABASE),
        [] if is_upgrade(planned) else _with_another_image(planned, CONTROLLER),
    ]
    return [step for step in steps if step]


def _ready(planned: Plan, *components: str) -> bool:
    """Whether those of the components that are there run and are ready, and slurmctld is there."""
    sets = [planned.live[at] for name in components if (at := ("StatefulSet", name)) in planned.live]
    pods = [(item["spec"]["replicas"], item.get("status", {}).get("readyReplicas", 0)) for item in sets]
    return ("StatefulSet", CONTROLLER) in planned.live and all(0 < wanted <= ready for wanted, ready in pods)


def _with_another_image(planned: Plan, component: str) -> list[Manifest]:
    """All that the component is made of, if its StatefulSet is there and gets another image under a slurmctld."""
    both = [found.get(("StatefulSet", component)) for found in (planned.live, planned.wanted)]
    if None in both or len(set(map(image_of, filter(None, both)))) < 2 or not _ready(planned, CONTROLLER):
        return []
    return [
        as_member(item, planned.namespace)
        for item in planned.objects
        if is_member(item) and component_of(item.document) == component
    ]
