"""Which cloud a stack file names."""

from __future__ import annotations

import pulumi

from components.clouds.base import CloudResources
from components.clouds.existing import ExistingCluster, LocalCluster
from config.cluster import ClusterConfig
from config.sections.cloud import NebiusCloud


def connect(config: ClusterConfig) -> CloudResources:
    """The cloud of the configuration, with what it makes."""
    cloud = config.cloud
    if isinstance(cloud, NebiusCloud):
        # Its provider takes half a second to load, which only those wait for who use it.
        from components.clouds.nebius import cloud as nebius  # noqa: PLC0415
        from components.clouds.nebius.resources import create_provider  # noqa: PLC0415

        opts = pulumi.ResourceOptions(providers=[create_provider(cloud.project_id)])
        args = nebius.NebiusCloudArgs(config=config, cloud=cloud)
        return nebius.NebiusCloud(f"{cloud.prefix(config.cluster.namespace)}-cloud", args, opts)
    return LocalCluster(cloud) if cloud.is_local else ExistingCluster(cloud)
