"""Slurm's files, sizes and names as computed from a configuration."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config import load_config
from config.sections.services import Images
from slurm.certificates import ed25519_public_key
from slurm.conf import effective_settings, render
from slurm.images import ROLES, image_tag, image_tags
from slurm.sizing import max_node_count, real_memory_mib
from tests import stacks
from tests.stacks import with_change


def test_a_user_s_setting_wins_whatever_its_case_and_stands_where_ours_stood() -> None:
    before = render(load_config(stacks.dev()))["slurm.conf"].splitlines()
    own = {"defmempercpu": 700, "ReturnToService": 1, "TreeWidth": 20}
    lines = render(load_config(with_change(stacks.dev(), "slurm.settings", own)))["slurm.conf"].splitlines()
    assert lines[-1] == "TreeWidth=20"
    assert sorted(set(lines) - set(before)) == ["DefMemPerCPU=700", "ReturnToService=1", "TreeWidth=20"]
    assert [line.partition("=")[0] for line in lines[: len(before)]] == [line.partition("=")[0] for line in before]


@pytest.mark.parametrize("sections", [stacks.existing_full(), stacks.nebius_full()])
def test_no_key_stands_twice_and_no_comment_looks_like_one(sections: dict[str, Any]) -> None:
    """What reads slurm.conf line by line, our own programs too, finds each key where it holds."""
    lines = render(load_config(sections))["slurm.conf"].splitlines()
    keys = [
        line.partition("=")[0] for line in lines if "=" in line and not line.startswith(("NodeSet", "PartitionName"))
    ]
    assert len(keys) == len(set(keys))
    assert not [key for key in keys if not re.fullmatch("[A-Za-z]+", key)]


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("idle_on_node_suspend", "enable_configless,idle_on_node_suspend"),
        ('"idle_on_node_suspend, user_resv_delete"', "enable_configless,idle_on_node_suspend,user_resv_delete"),
    ],
)
def test_no_setting_can_cut_the_workers_off_from_their_configuration(written: str, kept: str) -> None:
    sections = with_change(stacks.dev(), "slurm.settings.SlurmctldParameters", written)
    assert effective_settings(load_config(sections))["SlurmctldParameters"] == kept


@pytest.mark.parametrize(
    ("theirs", "ours"), [({"DefMemPerNode": 900}, "DefMemPerCPU"), ({"maxmempercpu": 900}, "MaxMemPerNode")]
)
def test_a_user_s_setting_that_excludes_one_of_ours_stands_alone(theirs: dict[str, int], ours: str) -> None:
    """Slurm would take ours and say nothing."""
    assert ours in effective_settings(load_config(stacks.dev()))
    settings = effective_settings(load_config(with_change(stacks.dev(), "slurm.settings", theirs)))
    assert ours not in settings
    assert theirs.items() <= {key: int(value) for key, value in settings.items() if value.isdigit()}.items()


def test_a_size_is_in_none_of_the_files() -> None:
    small = render(load_config(with_change(stacks.dev(), "worker_nodes.default.size", 1)))
    large = render(load_config(with_change(stacks.dev(), "worker_nodes.default.size", 500)))
    assert small == large


def test_a_host_key_never_changes_between_releases() -> None:
    # Clients keep host keys: deriving another one from the same seed would look like an attack to all of them.
    expected = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDx3NUlOfozki1FSZ02oppP6dSN9SuY5iOpFo389/7Qb"
    assert ed25519_public_key(base64.b64encode(bytes(32)).decode()) == expected


def test_what_the_jail_has_besides_gives_its_image_another_tag_and_no_other_image() -> None:
    def tags(**jail: object) -> dict[str, str]:
        return image_tags("24.11", Images.model_validate({"jail": jail}))

    plain = tags()
    assert plain == dict.fromkeys(ROLES, image_tag("24.11"))
    found = [tags(packages=["vim"]), tags(packages=["vim", "bc"]), tags(cuda=True), tags(cuda=True, packages=["vim"])]
    assert len({one["jail"] for one in (plain, *found)}) == 5
    for one in found:
        assert one["jail"].startswith(f"{plain['jail']}-")
        assert {**one, "jail": plain["jail"]} == plain
    assert tags(packages=["bc", "vim"]) == tags(packages=["vim", "bc"]), "the order is of no matter"


def test_a_tag_of_one_s_own_is_that_of_all_images() -> None:
    images = Images.model_validate({"tag": "mine", "jail": {"cuda": True}})
    assert image_tags("24.11", images) == dict.fromkeys(ROLES, "mine")
    assert image_tags("24.11", images, "another") == dict.fromkeys(ROLES, "another")


@given(st.integers(256, 4 * 2**20))
def test_slurm_never_gets_more_memory_than_the_pod_has(mebibytes: int) -> None:
    given_to_slurm = real_memory_mib(f"{mebibytes}Mi")
    assert 1 <= given_to_slurm <= mebibytes - 128
    assert given_to_slurm >= mebibytes * 0.97 - 128


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=2))
def test_there_is_always_room_for_twice_the_nodes(sizes: list[int]) -> None:
    sections = stacks.with_pools(len(sizes))
    for index, size in enumerate(sizes):
        sections["worker_nodes"][f"pool{index}"] = {**sections["worker_nodes"][f"pool{index}"], "size": size}
    count = max_node_count(load_config(sections).worker_nodes)
    assert count >= max(1024, 2 * sum(sizes))
    assert count & (count - 1) == 0
