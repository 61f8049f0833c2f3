"""The config agent's decisions where slurmctld is slow, silent or ends; tests/slurm/test_config_agent.py: the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.common.command import TIMED_OUT, Result
from images.controller.agent import PATIENCE_SECONDS, SILENT, SURVIVAL_SECONDS
from images.controller.check import Verdict
from images.controller.configuration import config_hash
from tests.unit.images.agents import MISSPELT, World

GOOD = {"slurm.conf": "ClusterName=a\n"}
BETTER = {"slurm.conf": "ClusterName=a\nMaxJobCount=5\n"}
BAD = {"slurm.conf": f"{MISSPELT}=a\n"}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_change_back_to_the_active_version_clears_the_rejection_without_a_reconfigure(world: World) -> None:
    world.start(GOOD)
    world.agent.take(BAD)

    world.agent.take(GOOD)

    assert world.board.get().rejected is None
    assert world.board.get().pending is None
    assert world.slurmctld.reconfigured == 0


@pytest.mark.parametrize(
    ("seconds", "taken"), [(0, True), (SURVIVAL_SECONDS + 60, True), (PATIENCE_SECONDS + 60, False)]
)
def test_slurmctld_that_lives_and_waits_for_slurmdbd_is_given_time(world: World, seconds: float, taken: bool) -> None:
    world.start(GOOD)
    world.slurmctld.silence = seconds
    changed = {"slurm.conf": "ClusterName=other\n"}

    world.agent.take(changed)

    rejected = world.board.get().rejected
    if taken:
        assert (world.board.get().active, rejected) == (config_hash(changed), None)
    else:
        assert rejected is not None
        assert world.rejected.message == SILENT
        assert world.store.current() == config_hash(GOOD)


def test_slurmctld_that_ends_by_chance_when_it_reads_a_change_reads_it_once_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.start(GOOD)
    reconfigure = world.slurmctld.reconfigure

    def end() -> Result:
        world.slurmctld.up = False
        return Result(code=0)

    monkeypatch.setattr(world.slurmctld, "reconfigure", end)
    world.agent.take(BETTER)
    assert world.store.current() == config_hash(GOOD)
    assert world.board.get().pending == config_hash(BETTER)

    monkeypatch.setattr(world.slurmctld, "reconfigure", reconfigure)
    world.slurmctld.start()
    world.agent.tick()

    assert world.store.current() == config_hash(BETTER)
    assert (world.board.get().active, world.board.get().rejected) == (config_hash(BETTER), None)


def test_complaints_that_the_active_version_has_too_are_nothing_new(world: World) -> None:
    old = Verdict(starts=True, complaints=("error: old complaint",))
    world.verdicts = {config_hash(GOOD): old, config_hash(BETTER): old}
    world.start(GOOD)

    world.agent.take(BETTER)

    assert world.board.get().active == config_hash(BETTER)


def test_a_new_complaint_is_a_rejection_even_where_slurmctld_starts(world: World) -> None:
    world.verdicts = {config_hash(BETTER): Verdict(starts=True, complaints=("error: Ignoring invalid QOS",))}
    world.start(GOOD)

    world.agent.take(BETTER)

    assert world.board.get().active == config_hash(GOOD)
    assert world.rejected.message == "error: Ignoring invalid QOS"


@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_published_while_slurmctld_starts_with_the_files_before_is_read_when_it_is_up(
    world: World, *, restarts: bool
) -> None:
    world.start(GOOD)
    world.slurmctld.up = False
    world.slurmctld.begin()
    world.agent.take(BETTER)
    if restarts:
        world.restart_agent()
        world.agent.take(BETTER)
    world.slurmctld.come_up()
    world.agent.tick()
    assert world.board.get().active == config_hash(BETTER)
    assert world.slurmctld.read == [BETTER]
    world.agent.take(BETTER)
    assert world.slurmctld.reconfigured == 1


def end_before_it_is_read(world: World, files: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent publishes files, is killed before slurmctld is told, and starts again."""

    def killed() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(world.slurmctld, "reconfigure", killed)
        with pytest.raises(KeyboardInterrupt):
            world.agent.take(files)
    world.restart_agent()


def test_an_agent_that_ends_before_slurmctld_has_read_what_it_has_published_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.start(GOOD)

    end_before_it_is_read(world, BETTER, monkeypatch)
    world.agent.take(BETTER)
    assert world.slurmctld.read == [BETTER]
    assert world.board.get().active == config_hash(BETTER)


def test_what_was_silent_about_new_files_reads_those_before_when_it_answers(world: World) -> None:
    """It runs with the new ones by then, which are rejected."""
    world.start(GOOD)
    world.slurmctld.silence = PATIENCE_SECONDS + 60
    world.agent.take(BETTER)
    assert world.rejected.message == SILENT
    world.agent.tick()
    assert world.board.get().pending == config_hash(GOOD)
    world.clock.sleep(world.slurmctld.silence)
    world.slurmctld.silence = 0
    world.agent.tick()
    assert world.slurmctld.read == [BETTER, GOOD]
    assert world.board.get().active == config_hash(GOOD)


def test_what_scontrol_itself_cannot_read_is_taken_back_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.start(GOOD)
    refusal = Result(code=1, stderr="scontrol: fatal: Unable to process configuration file")
    monkeypatch.setattr(world.slurmctld, "reconfigure", lambda: refusal)

    world.agent.take(BETTER)

    assert world.store.current() == config_hash(GOOD)
    assert "Unable to process configuration file" in world.rejected.message


def test_a_slow_answer_to_the_reconfiguration_is_no_refusal(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.start(GOOD)
    questions: list[str] = []

    def reconfigure() -> Result:
        questions.append("scontrol reconfigure")
        return Result(code=TIMED_OUT)

    monkeypatch.setattr(world.slurmctld, "reconfigure", reconfigure)

    world.agent.take(BETTER)

    assert world.board.get().active == config_hash(BETTER)
    assert len(questions) == 2, "it may have answered before it read them: once more, and not for ever"
