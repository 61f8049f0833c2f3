"""What comes first where machines have no room for all: what the cluster cannot do without, then its workers."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.kit.context import recommended_labels
from slurm.names import ACCOUNTING, CONTROL, CONTROLLER, DATABASE, ELASTIC, LOGIN

FIRST = frozenset({CONTROLLER, ACCOUNTING, DATABASE, ELASTIC, LOGIN})
"""Components without which nobody works."""

PRIORITY = 1000
"""Above pods without a PriorityClass, which have 0, as workers are. Far below Kubernetes' own."""


@dataclass(frozen=True, kw_only=True)
class PriorityArgs:
    """Inputs of `Priority`."""

    cluster: str
    """Name of its namespace."""


class Priority(pulumi.ComponentResource):
    """A PriorityClass for the pods of `FIRST`: of pods that wait they get room first, and kubelets evict them last.

    It ends no pod for others (`Never`): a class counts in the whole Kubernetes cluster, and whose pods may be ended
    there its administrator decides.
    """

    name: pulumi.Output[str]

    def __init__(self, name: str, args: PriorityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:Priority", name, None, opts)
        made = k8s.scheduling.v1.PriorityClass(
            f"{name}-class",
            # Its name is shared by all clusters in one Kubernetes, so the namespace is in it.
            metadata=k8s.meta.v1.ObjectMetaArgs(
                name=f"{args.cluster}-{CONTROL}", labels=recommended_labels(args.cluster, CONTROL)
            ),
            value=PRIORITY,
            preemption_policy="Never",
            description="Slurm's daemons and login nodes",
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.name = made.metadata.apply(lambda metadata: str(metadata.name))
        self.register_outputs({})
