"""`worker_nodes.<pool>.confinement` and `containers`, and what it has to do with Slurm's own settings."""

from __future__ import annotations

from config import load_config
from slurm.conf import effective_settings
from tests import stacks


def test_slurmctld_takes_workers_for_granted_that_read_lines_of_their_own() -> None:
    settings = {"slurm": {"settings": {"DebugFlags": "Backfill"}}}

    assert effective_settings(load_config(stacks.dev()))["DebugFlags"] == "NO_CONF_HASH"
    assert effective_settings(load_config({**stacks.dev(), **settings}))["DebugFlags"] == "NO_CONF_HASH,Backfill"
