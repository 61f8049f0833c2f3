"""Tokens: for how long and for whom slurmctld makes them, as the stack file says."""

from __future__ import annotations

import subprocess

import pytest

from config import load_config
from config.sections.services import Rest
from tests import stacks
from tests.slurm.cluster import ClusterFactory
from tests.slurm.configuring import change
from tests.slurm.minimal import TOKENS, identity, lines_of, minimal_config
from tests.slurm.sandbox import SlurmSandbox

TOO_LONG = "Requested time limit is invalid"
CLOSED = "Access/permission denied"


def config(version: str, rest: Rest) -> dict[str, str]:
    lines = lines_of(load_config(stacks.dev()).model_copy(update={"rest": rest}), *TOKENS)
    return minimal_config(version, lines, **identity({"alice": 10001}, "/tmp"))


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, slurm_version: str) -> SlurmSandbox:
    """slurmctld with the limits of a stack file that says nothing of tokens."""
    return slurm_cluster(slurm_version, workers=0, config=config(slurm_version, Rest()))


def token(cluster: SlurmSandbox, options: str, user: str = "alice") -> subprocess.CompletedProcess[str]:
    return cluster.run(f"setpriv --reuid={user} --clear-groups scontrol token {options}")


def test_a_token_is_good_for_a_day_at_most_unless_the_stack_says_otherwise(cluster: SlurmSandbox) -> None:
    for options in ("lifespan=999999", "lifespan=86401", "lifespan=infinite"):
        refused = token(cluster, options)
        assert refused.returncode != 0
        assert TOO_LONG in refused.stderr
    for options in ("", "lifespan=86400"):
        assert token(cluster, options).stdout.startswith("SLURM_JWT=")
    assert token(cluster, "username=alice lifespan=999999", user="root").stdout.startswith("SLURM_JWT=")


def test_other_limits_hold_after_a_reconfiguration(cluster: SlurmSandbox, slurm_version: str) -> None:
    change(cluster, config(slurm_version, Rest(max_token_lifespan=60)))
    assert TOO_LONG in token(cluster, "lifespan=61").stderr
    assert token(cluster, "").stdout.startswith("SLURM_JWT="), "the default of half an hour is cut to the limit"

    change(cluster, config(slurm_version, Rest(token_creation=False)))
    assert CLOSED in token(cluster, "lifespan=61").stderr
    assert token(cluster, "username=alice", user="root").stdout.startswith("SLURM_JWT=")
