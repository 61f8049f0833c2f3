"""GPU clusters: the machines of one cluster talk over the same InfiniBand fabric."""

from __future__ import annotations

from collections.abc import Mapping

import pulumi
import pulumi_nebius as nebius

from components.clouds.nebius.scope import CloudScope
from config.sections.workers import WorkerPool


def create_gpu_clusters(scope: CloudScope, pools: Mapping[str, WorkerPool]) -> Mapping[str, pulumi.Input[str]]:
    """Id of the GPU cluster of each pool that has one.

    One new GPU cluster for each fabric, shared by the pools that name it: machines in different GPU clusters cannot
    reach each other, even on the same fabric. Pools that name an existing one get that.
    """
    chosen = {name: pool.gpu_cluster for name, pool in pools.items() if pool.gpu_cluster is not None}
    fabrics = sorted({each.infiniband_fabric for each in chosen.values() if each.infiniband_fabric is not None})
    made = {fabric: _create(scope, fabric).id for fabric in fabrics}
    return {name: each.id or made[str(each.infiniband_fabric)] for name, each in chosen.items()}


def _create(scope: CloudScope, fabric: str) -> nebius.ComputeV1GpuCluster:
    return nebius.ComputeV1GpuCluster(
        scope.name(fabric),
        name=scope.name(fabric),
        parent_id=scope.project,
        infiniband_fabric=fabric,
        labels=scope.labels,
        opts=scope.options,
    )
