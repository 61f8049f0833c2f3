"""What the config agent cannot take at once: limits that are too small, and no room on its volume."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from images.controller.agent import LOOK_AGAIN_SECONDS
from images.controller.configuration import Files, Store, config_hash
from tests.unit.images.agents import World

GOOD = {"slurm.conf": "ClusterName=a\n"}
SMALL = {"slurm.conf": "ClusterName=a\nMaxJobCount=1\n"}


class Full(World):
    """Whether slurmctld holds more than SMALL allows."""

    full = True

    def too_small(self, files: Files, _before: Files) -> str | None:
        return "too small" if self.full and files == SMALL else None


@pytest.fixture
def world(tmp_path: Path) -> Full:
    made = Full(tmp_path)
    made.settings["too_small"] = made.too_small
    made.restart_agent()
    return made


def test_a_limit_that_is_too_small_is_taken_when_it_no_longer_is(world: Full) -> None:
    world.start(GOOD)
    world.agent.take(SMALL)
    world.full = False
    world.agent.tick()
    assert world.board.get().active == config_hash(GOOD), "it is looked at every half minute only"

    world.clock.sleep(LOOK_AGAIN_SECONDS)
    world.agent.tick()

    assert world.store.current() == world.board.get().active == config_hash(SMALL)
    assert world.board.get().rejected is None


@pytest.mark.parametrize("restarts", [True, False])
def test_a_limit_that_is_too_small_is_not_what_slurmctld_starts_with(world: Full, *, restarts: bool) -> None:
    world.start(GOOD)
    world.slurmctld.up = False
    if restarts:
        world.ready.unlink()

    world.agent.take(SMALL)

    assert world.store.current() == config_hash(GOOD)
    assert world.ready.exists(), "slurmctld starts with the old ones"


def test_a_first_configuration_waits_for_room(world: Full, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Store, "_write", full)
        world.agent.take(GOOD)
        assert not world.ready.exists()

    world.clock.sleep(LOOK_AGAIN_SECONDS)
    world.agent.tick()

    assert world.ready.exists()
    assert world.store.current() == config_hash(GOOD)


def full(_store: Store, _version: str, _files: Files) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")
