"""slurmctld: starts when the config agent has published a configuration that was checked."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Final

from images.common import preload
from images.common.jwt_key import install_jwt_key
from images.common.log import Log
from images.common.process import become, end_on_sigterm
from images.common.readiness import wait_for_munge
from images.common.room import Volume, watch
from images.common.wait import wait_for
from images.controller.cluster_id import ClusterId
from images.controller.publish import READY, SLURM_CONF, STATE, read_files

VOLUME: Final = Volume(
    name="controller-state",
    path=STATE,
    remedy=(
        "jobs cannot be submitted, and a queue that is not saved is lost with the pod. Make it larger: "
        "slurmstack:controller: {storage: ...}, then `slurmstack up`"
    ),
)

_OWNED_BY_AGENT: Final = "slurmstack"
"""Directory in the state volume that the config agent writes; slurmctld only reads it."""


def own_state(state: Path, uid: int, gid: int) -> int:
    """Give the state directory to slurmctld's user; a fresh volume belongs to root. Returns how many changed."""
    changed = 0
    for path in [
        state,
        *(entry for entry in state.rglob("*") if _OWNED_BY_AGENT not in entry.relative_to(state).parts),
    ]:
        status = path.lstat()
        if (status.st_uid, status.st_gid) != (uid, gid):
            os.lchown(path, uid, gid)
            changed += 1
    return changed


def command(state: Path) -> list[str]:
    """Command line of slurmctld.

    26.05 saves the usage of associations every five minutes, and refuses to start where it did not come to that
    ("fatal: No Assoc usage file"): killed in its first minutes, it would never start again. `-i` lets it.
    """
    began = (state / "clustername").exists() and not (state / "assoc_usage").exists()
    return ["/usr/sbin/slurmctld", "-D", *(["-i"] if began else []), "-f", str(SLURM_CONF)]


def main() -> None:
    """Entry point."""
    end_on_sigterm()
    log = Log("slurmctld")
    wait_for(f"a checked configuration from config-agent ({READY})", READY.exists, log)
    wait_for_munge(log)
    user = pwd.getpwnam("slurm")
    install_jwt_key(user.pw_uid, user.pw_gid, log)
    files, cluster_id = read_files(SLURM_CONF.parent), ClusterId()
    while obstacle := cluster_id.obstacle(files):
        wait_for(obstacle, lambda: cluster_id.obstacle(files) is None, log, poll_seconds=0.2)
    cluster_id.prepare(files)
    own_state(STATE, user.pw_uid, user.pw_gid)
    watch(VOLUME, user, log)
    become(command(STATE), log, env=preload.environment(preload.LOST_PEERS, preload.NO_TRIGGERS))
