"""What two controllers need of the rest."""

from __future__ import annotations

from collections.abc import Iterator

from config.cluster import Sections
from config.errors import Problem
from config.nebius.cloud import NebiusCloud
from config.sections.cloud import Cloud
from config.sections.services import Controller
from config.sections.slurm import Slurm, folded

_QUEUE = "enable_rpc_queue"


def availability_problems(sections: Sections) -> Iterator[Problem]:
    """Two controllers write to one volume, and answer only what is saved."""
    controller: Controller | None = sections.get("controller")
    if controller is None or controller.replicas == 1:
        return
    cloud: Cloud | None = sections.get("cloud")
    if isinstance(cloud, NebiusCloud):
        if controller.filesystem is None:
            yield Problem("controller.replicas", _needs("set controller.filesystem: {} for a shared file system"))
        if cloud.controller_nodes.max_size < 2:
            message = (
                "is 1, and with controller.replicas: 2 each runs on a machine of its own; set min_size and max_size"
            )
            yield Problem("cloud.controller_nodes.max_size", f"{message} to 2")
    elif cloud is not None and not cloud.is_local and controller.storage_class is None:
        remedy = "name one in controller.storage_class whose volumes can be ReadWriteMany (docs/availability.md)"
        yield Problem("controller.replicas", _needs(remedy))
    slurm: Slurm | None = sections.get("slurm")
    if slurm is not None and _QUEUE in str(folded(slurm.settings).get("slurmctldparameters", "")).lower():
        message = (
            f"has {_QUEUE} in SlurmctldParameters, with which slurmctld answers while it holds what it would have to "
            "save first; with controller.replicas: 2 remove it"
        )
        yield Problem("slurm.settings", message)


def _needs(remedy: str) -> str:
    return f"is 2, and both need the volume of the state at the same time, which a disk cannot give: {remedy}"
