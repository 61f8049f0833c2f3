"""What the models of sections say beyond which values they take (that is in `cases`), and what editors know of them."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from config import load_config, load_stack_file
from config.base import seconds
from config.schema import stack_file_schema
from slurm.conf import effective_settings, render
from slurm.sizing import node_conf
from tests import stacks
from tests.stacks import ROOT, with_change
from tests.unit.config.messages import document, with_sections


def test_slurmctld_takes_workers_for_granted_that_read_lines_of_their_own() -> None:
    settings = {"slurm": {"settings": {"DebugFlags": "Backfill"}}}
    assert effective_settings(load_config(stacks.dev()))["DebugFlags"] == "NO_CONF_HASH"
    assert effective_settings(load_config({**stacks.dev(), **settings}))["DebugFlags"] == "NO_CONF_HASH,Backfill"


def test_a_group_with_a_blank_is_one_group() -> None:
    sections = with_change(stacks.existing_full(), "sssd", {"secret": "ldap"})
    sections = with_change(sections, "partitions.gpu.allow_groups", ["domain users", "hpc"])
    assert 'AllowGroups="domain users,hpc"' in render(load_config(sections))["slurm.conf"]


def test_editors_accept_what_we_accept() -> None:
    external = {"host": "db.example", "password": {"name": "db", "key": "password"}}
    sections = with_sections(
        accounts={"ml": {"fairshare": "parent", "grp_tres": {"gres/gpu:h100": 8}}, "cv": {"fairshare": 3}},
        users={
            "alice": {"uid": 10001, "accounts": ["ml"]},
            "bob": {"uid": 10002, "accounts": {"ml": {"max_wall": "unlimited"}}},
        },
        licenses={"ansys": 3},
        accounting={"retention": {"jobs": "90days", "steps": None}, "database": {"external": external}},
        sssd={"secret": "sssd"},
        health={"max_drained": "5%"},
    )
    load_config(sections)
    jsonschema.validate(document(sections), stack_file_schema())


def test_the_cluster_of_teams_of_the_page_about_accounting_is_accepted_as_it_is(tmp_path: Path) -> None:
    lines = (ROOT / "docs/accounting.md").read_text(encoding="utf-8").splitlines()
    lines = lines[lines.index("    config:") :]
    length = next(count for count, line in enumerate(lines) if line and not line.startswith("    "))
    path = tmp_path / "Pulumi.teams.yaml"
    path.write_text(textwrap.dedent("\n".join(lines[:length])), encoding="utf-8")
    config = load_stack_file(path)
    assert config.accounts["students"].parent == "physics"
    assert config.partitions["gpu"].allow_accounts == ("physics",)
    jsonschema.validate(yaml.safe_load(path.read_text(encoding="utf-8")), stack_file_schema())


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("30", 1800), ("1:30", 90), ("1:30:00", 5400), ("2-12", 216_000), ("2-12:30", 217_800), ("1-00:00:01", 86_401),
        ("UNLIMITED", None), ("infinite", None),
    ],
)  # fmt: skip
def test_times_mean_what_slurm_means(limit: str, expected: int | None) -> None:
    assert seconds(limit) == expected


@pytest.mark.parametrize("where", [{"storage_class": "fast"}, {"host_path": "/mnt/nvme"}])
def test_scratch_is_the_disk_that_slurm_knows_of(where: dict[str, Any]) -> None:
    scratch = {"size": "1Ti", **where}
    gpu = load_config(with_change(stacks.existing(), "worker_nodes.gpu.scratch", scratch)).worker_nodes["gpu"]
    assert f" TmpDisk={2**20} Feature=" in node_conf("gpu", gpu)
