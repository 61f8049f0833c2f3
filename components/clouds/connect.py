"""Which cloud a stack file names."""

from __future__ import annotations

from components.clouds.base import CloudResources
from components.clouds.existing import ExistingCluster, LocalCluster
from config.cluster import ClusterConfig
from config.nebius import NebiusCloud


def connect(config: ClusterConfig) -> CloudResources:
    """The cloud of the configuration, with what it makes."""
    cloud = config.cloud
    if isinstance(cloud, NebiusCloud):
        raise NotImplementedError(cloud.kind)
    return LocalCluster(cloud) if cloud.is_local else ExistingCluster(cloud)
