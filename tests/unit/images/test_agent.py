"""The config agent's decisions where slurmctld is slow, silent or ends, where the files cannot be taken yet, and about
the switch tree beside them; tests/slurm/test_config_agent.py: the rest."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from images.common.command import TIMED_OUT, Result
from images.controller.agent import ENDED_AT_START, LOOK_AGAIN_SECONDS, PATIENCE_SECONDS, SILENT, SURVIVAL_SECONDS
from images.controller.check import Verdict
from images.controller.configuration import TOPOLOGY_CONF, config_hash
from images.controller.topology import LABELS_FILE
from tests.unit.images.agents import COMPLAINT, DEADLY, MISSPELT, World

GOOD = {"slurm.conf": "ClusterName=a\n"}
BETTER = {"slurm.conf": "ClusterName=a\nMaxJobCount=5\n"}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize(("seconds", "taken"), [(SURVIVAL_SECONDS + 60, True), (PATIENCE_SECONDS + 60, False)])
def test_slurmctld_that_lives_and_waits_for_slurmdbd_is_given_time(world: World, seconds: float, taken: bool) -> None:
    world.start(GOOD)
    world.slurmctld.silence = seconds
    changed = {"slurm.conf": "ClusterName=other\n"}

    world.agent.take(changed)

    if taken:
        assert (world.active, world.agent.status.rejected) == (config_hash(changed), None)
    else:
        assert world.rejected.message == SILENT
        assert world.store.current() == config_hash(GOOD)


def test_slurmctld_that_ends_by_chance_when_it_reads_a_change_reads_it_once_more(world: World) -> None:
    world.start(GOOD)

    def end() -> Result:
        world.slurmctld.up = False
        return Result(code=0)

    world.slurmctld.instead = end
    world.agent.take(BETTER)
    assert world.store.current() == config_hash(GOOD)
    assert world.agent.status.pending == config_hash(BETTER)

    world.slurmctld.instead = None
    world.slurmctld.start()
    world.clock.sleep(LOOK_AGAIN_SECONDS)
    world.agent.tick()

    assert world.store.current() == config_hash(BETTER)
    assert (world.active, world.agent.status.rejected) == (config_hash(BETTER), None)


@pytest.mark.parametrize("before", [(), ("error: Ignoring invalid QOS",)], ids=["a new one", "one of before"])
def test_only_a_new_complaint_is_a_rejection_where_slurmctld_starts(world: World, before: tuple[str, ...]) -> None:
    complaint = "error: Ignoring invalid QOS"
    world.verdicts = {
        config_hash(GOOD): Verdict(starts=True, complaints=before),
        config_hash(BETTER): Verdict(starts=True, complaints=(complaint,)),
    }
    world.start(GOOD)

    world.agent.take(BETTER)

    assert world.active == config_hash(BETTER if before else GOOD)
    assert before or world.rejected.message == complaint


def test_an_agent_that_ends_before_slurmctld_has_read_what_it_has_published_goes_on(world: World) -> None:
    world.start(GOOD)
    world.slurmctld.instead = Mock(side_effect=KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        world.agent.take(BETTER)
    world.slurmctld.instead = None
    world.restart_agent()

    world.agent.take(BETTER)

    assert world.slurmctld.read == [BETTER]
    assert world.active == config_hash(BETTER)


def test_a_slow_answer_to_the_reconfiguration_is_no_refusal(world: World) -> None:
    world.start(GOOD)
    world.slurmctld.instead = asked = Mock(return_value=Result(code=TIMED_OUT))

    world.agent.take(BETTER)

    assert world.active == config_hash(BETTER)
    assert asked.call_count == 2, "it may have answered before it read them: once more, and not for ever"


# ---------------------------------------------------------------- what it cannot take at once


def test_a_limit_that_is_too_small_is_taken_when_it_no_longer_is(world: World) -> None:
    world.start(GOOD)
    world.slurmctld.forgets = BETTER
    world.agent.take(BETTER)
    world.slurmctld.forgets = None
    world.agent.tick()
    assert world.active == config_hash(GOOD), "it is looked at every half minute only"

    world.clock.sleep(LOOK_AGAIN_SECONDS)
    world.agent.tick()

    assert world.store.current() == world.active == config_hash(BETTER)
    assert world.agent.status.rejected is None


# ---------------------------------------------------------------- the switch tree beside the stack's files

STACK = {"slurm.conf": "ClusterName=a\n", LABELS_FILE: "x\n"}


@pytest.fixture
def controller(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.agent.first_topology = lambda keys: f"# first {','.join(keys)}\n"
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
    assert controller.active == config_hash(STACK)
    assert controller.agent.status.rejected is None


def give_up(world: World) -> None:
    """As the program that becomes slurmctld does, at its fourth start with a version that it never ran with."""
    world.slurmctld.up = False
    world.ready.unlink()


def test_what_slurmctld_ends_with_at_each_start_is_rejected_and_starts_again_later(world: World) -> None:
    world.agent.take(dict(GOOD))
    give_up(world)
    world.agent.tick()
    assert world.rejected.message.startswith(ENDED_AT_START)
    assert (world.active, world.ready.exists()) == (None, False)

    world.clock.sleep(LOOK_AGAIN_SECONDS)
    world.agent.tick()
    assert world.ready.exists()
    world.slurmctld.start()
    world.agent.tick()
    assert (world.active, world.agent.status.rejected) == (config_hash(GOOD), None)
