"""slurmctld: starts when the config agent has published a configuration that was checked."""

from __future__ import annotations

import pwd
from pathlib import Path
from typing import Final

from images.common import terms
from images.common.files import install_jwt_key, own_tree, write_atomically
from images.common.process import (
    ACTIVE_HOST,
    LOST_PEERS,
    NO_TRIGGERS,
    SAVED_FIRST,
    STATE_VARIABLE,
    become,
    program,
    with_preloaded,
)
from images.common.readiness import wait_for_munge
from images.common.room import Volume, watch
from images.common.wait import wait_for, wait_while
from images.controller.cluster_id import ClusterId
from images.controller.configuration import READ, READY, SLURM_CONF, STATE, Store, read_files

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


def command(state: Path) -> list[str]:
    """Command line of slurmctld.

    26.05 saves the usage of associations every five minutes, and refuses to start where it did not come to that
    ("fatal: No Assoc usage file"): killed in its first minutes, it would never start again. `-i` lets it.
    """
    began = (state / "clustername").exists() and not (state / "assoc_usage").exists()
    return ["/usr/sbin/slurmctld", "-D", *(["-i"] if began else []), "-f", str(SLURM_CONF)]


def main() -> None:
    """Entry point."""
    with program("slurmctld") as log:
        of_two = terms.is_shared()
        if not of_two:
            terms.return_to_one_of_pod(STATE)
        wait_for(f"a checked configuration from config-agent ({READY})", READY.exists, log)
        wait_for_munge(log)
        user = pwd.getpwnam("slurm")
        owner = (user.pw_uid, user.pw_gid)
        install_jwt_key(owner, log)
        files, cluster_id = read_files(SLURM_CONF.parent), ClusterId()
        if again := terms.finish_saves(STATE):
            log(f"an earlier slurmctld was ended while it saved; whole again: {', '.join(again)}")
        wait_while(lambda: cluster_id.obstacle(files), log, poll_seconds=0.2)
        cluster_id.prepare(files)
        own_tree(STATE, owner, but=lambda path: _OWNED_BY_AGENT in path.relative_to(STATE).parts)
        watch(VOLUME, user, log)
        # Should another one be published right now, the agent finds that this is not it.
        write_atomically(READ, Store().current() or "", sync=False)
        more = (SAVED_FIRST, ACTIVE_HOST) if of_two else ()
        env = with_preloaded(LOST_PEERS, NO_TRIGGERS, *more)
        become(command(STATE), log, env={**env, STATE_VARIABLE: str(STATE)} if of_two else env)
