"""A cluster of users who are not trusted (test_boundary.py)."""

from __future__ import annotations

from config import load_config
from tests import stacks
from tests.slurm.cluster import ClusterFactory
from tests.slurm.login import declare, ssh_to, start_client, start_login
from tests.slurm.minimal import IN_JAIL, TOKENS, identity, lines_of, minimal_config
from tests.slurm.sandbox import SlurmSandbox

UIDS = {"alice": 25201, "bob": 25202}


def boundary_cluster(slurm_cluster: ClusterFactory, slurm_version: str) -> SlurmSandbox:
    """A worker and a login node with their real capabilities. Alice has sudo, bob has not."""
    stack = load_config(stacks.dev())
    bounds = ("SlurmctldParameters", "SlurmdParameters", "DisableRootJobs", "PropagateResourceLimits")
    extra = lines_of(stack, *TOKENS, "Prolog", "Epilog", *bounds)
    config = minimal_config(slurm_version, extra, **IN_JAIL, **identity(UIDS))
    sandbox = slurm_cluster(slurm_version, config=config, workers=1, jail=True)
    start_client(sandbox)
    declare(sandbox, UIDS, sudo="alice")
    start_login(sandbox)
    return sandbox


def shell(cluster: SlurmSandbox, user: str, command: str) -> str:
    """What a command prints that a user runs on the login node, in the jail."""
    (cluster.jail / f"home/{user}/.command").write_text(command)
    code, out = ssh_to(cluster, user, "bash .command")
    assert code == 0, f"{command}: {out}\n{cluster.logs()}"
    return out
