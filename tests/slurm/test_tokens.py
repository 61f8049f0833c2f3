"""Tokens: for how long slurmctld makes them, where the stack file says nothing of it."""

from __future__ import annotations

import subprocess

import pytest

from config import load_config
from tests import stacks
from tests.slurm.cluster import ClusterFactory
from tests.slurm.minimal import TOKENS, identity, lines_of, minimal_config
from tests.slurm.sandbox import SlurmSandbox

TOO_LONG = "Requested time limit is invalid"


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, slurm_version: str) -> SlurmSandbox:
    lines = lines_of(load_config(stacks.dev()), *TOKENS)
    config = minimal_config(slurm_version, lines, **identity({"alice": 10001}, "/tmp"))
    return slurm_cluster(slurm_version, workers=0, config=config)


def token(cluster: SlurmSandbox, options: str, user: str = "alice") -> subprocess.CompletedProcess[str]:
    return cluster.run(f"setpriv --reuid={user} --clear-groups scontrol token {options}")


def test_a_token_that_a_user_makes_is_good_for_a_day_at_most(cluster: SlurmSandbox) -> None:
    for options in ("lifespan=999999", "lifespan=86401", "lifespan=infinite"):
        refused = token(cluster, options)
        assert refused.returncode != 0
        assert TOO_LONG in refused.stderr
    for options in ("", "lifespan=86400"):
        assert token(cluster, options).stdout.startswith("SLURM_JWT=")
    assert token(cluster, "username=alice lifespan=999999", user="root").stdout.startswith("SLURM_JWT=")
