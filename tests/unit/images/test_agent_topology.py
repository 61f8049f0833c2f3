"""The switch tree beside the stack's files: which versions there are, and what is in force."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.controller.configuration import config_hash, stack_part, version_of
from images.controller.topology import LABELS_FILE, TOPOLOGY_CONF
from tests.unit.images.agents import COMPLAINT, DEADLY, MISSPELT, World

STACK = {"slurm.conf": "ClusterName=a\n", LABELS_FILE: "x\n"}


@pytest.fixture
def controller(tmp_path: Path) -> World:
    made = World(tmp_path, first_topology=lambda keys: f"# first {','.join(keys)}\n")
    made.start(STACK)
    return made


def topology(world: World) -> str:
    return world.agent.published()[TOPOLOGY_CONF]


def test_a_new_tree_goes_with_the_settings_in_force_not_with_rejected_ones(controller: World) -> None:
    controller.agent.take({**STACK, "slurm.conf": MISSPELT})
    assert controller.agent.reload("# second\n")
    assert controller.agent.published()["slurm.conf"] == STACK["slurm.conf"]
    assert COMPLAINT in controller.rejected.message


@pytest.mark.parametrize("text", [MISSPELT, DEADLY])
def test_a_tree_that_slurm_does_not_like_is_taken_back(controller: World, text: str) -> None:
    assert not controller.agent.reload(text)
    assert topology(controller) == "# first x\n"
    assert controller.board.get().active == config_hash(STACK)
    assert controller.board.get().rejected is None


def test_the_same_tree_is_read_again_when_nodes_wait(controller: World) -> None:
    assert controller.agent.reload("# first x\n")
    assert controller.slurmctld.reconfigured == 1


def test_while_slurmctld_is_down_no_tree_is_published(controller: World) -> None:
    controller.slurmctld.up = False
    assert not controller.agent.reload("# second\n")
    assert topology(controller) == "# first x\n"


def test_the_name_of_a_version_tells_the_stacks_part() -> None:
    assert stack_part(version_of({**STACK, TOPOLOGY_CONF: "1"})) == config_hash(STACK)
    assert version_of({**STACK, TOPOLOGY_CONF: "1"}) != version_of({**STACK, TOPOLOGY_CONF: "2"})
    assert stack_part(None) is None
