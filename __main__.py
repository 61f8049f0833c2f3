"""The Pulumi program: reads the stack's configuration, builds one Slurm cluster, exports what its users need."""

from __future__ import annotations

import os
import signal
import sys

import pulumi

from components.clouds.connect import connect
from components.cluster import SlurmCluster, SlurmClusterArgs, stack_config
from config import ConfigError


def main() -> None:
    """Build the cluster that the stack file describes."""
    config = stack_config()
    cloud = connect(config)
    cluster = SlurmCluster(
        config.cluster.namespace,
        SlurmClusterArgs(config=config, cloud=cloud),
        opts=pulumi.ResourceOptions(provider=cloud.provider),
    )
    for name, value in {**cluster.outputs, **cloud.exports}.items():
        pulumi.export(name, value)


if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Run by the engine, which interrupts the program when the update has failed: why that is has been said then, and a
    # traceback would bury it. (`slurmstack`, which runs this in its own process, has a handler of its own.)
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))

try:
    main()
except ConfigError as error:
    for problem in error.problems:
        pulumi.log.error(str(problem))
    sys.exit(1)
