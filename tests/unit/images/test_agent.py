"""The config agent's decisions."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.common.command import TIMED_OUT, Result
from images.controller.agent import DIED, PATIENCE_SECONDS, SILENT, SURVIVAL_SECONDS
from images.controller.check import Verdict
from images.controller.cluster_id import ClusterId
from images.controller.configuration import config_hash
from tests.unit.images.agents import COMPLAINT, DEADLY, MISSPELT, World

GOOD = {"slurm.conf": "ClusterName=a\n"}
BETTER = {"slurm.conf": "ClusterName=a\nMaxJobCount=5\n"}
BAD = {"slurm.conf": f"{MISSPELT}=a\n"}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_slurmctld_may_start_only_after_the_check(world: World) -> None:
    world.agent.take(GOOD)

    assert world.ready.exists()
    assert world.store.current() == config_hash(GOOD)
    assert world.board.get().pending == config_hash(GOOD)
    assert world.board.get().active is None


def test_a_configuration_is_active_only_when_slurmctld_answers(world: World) -> None:
    world.start(GOOD)

    assert world.board.get().active == config_hash(GOOD)
    assert world.board.get().pending is None


def test_a_first_bad_configuration_keeps_slurmctld_waiting(world: World) -> None:
    world.agent.take(BAD)

    assert not world.ready.exists()
    assert COMPLAINT in world.rejected.message


def test_a_bad_configuration_at_boot_starts_the_last_good_one(world: World) -> None:
    world.start(GOOD)
    world.ready.unlink()
    world.restart_agent()

    world.agent.take(BAD)
    world.slurmctld.start()
    world.agent.tick()

    assert world.ready.exists()
    assert world.board.get().active == config_hash(GOOD)
    assert world.rejected.hash == config_hash(BAD)


def test_a_good_change_is_published_and_read(world: World) -> None:
    world.start(GOOD)

    world.agent.take(BETTER)

    assert world.board.get().active == config_hash(BETTER)
    assert world.slurmctld.reconfigured == 1


def test_a_bad_change_never_reaches_slurmctld(world: World) -> None:
    world.start(GOOD)

    world.agent.take(BAD)

    assert world.slurmctld.reconfigured == 0
    assert world.store.current() == config_hash(GOOD)
    assert world.board.get().active == config_hash(GOOD)
    assert world.rejected.message.splitlines() == [COMPLAINT, "fatal: Unable to process configuration file"]


def test_a_change_back_to_the_active_version_clears_the_rejection_without_a_reconfigure(world: World) -> None:
    world.start(GOOD)
    world.agent.take(BAD)

    world.agent.take(GOOD)

    assert world.board.get().rejected is None
    assert world.board.get().pending is None
    assert world.slurmctld.reconfigured == 0


def test_slurmctld_that_is_only_slow_to_answer_keeps_the_change(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """On an overloaded machine each question about it takes its whole time limit of seconds."""
    world.start(GOOD)
    clock = world.agent._clock
    answers = iter([True, False, False, False, True, True])

    def is_up() -> bool:
        answer = next(answers)
        if not answer:
            clock.sleep(5)
        return answer

    monkeypatch.setattr(world.slurmctld, "is_up", is_up)
    changed = {"slurm.conf": "ClusterName=other\n"}

    world.agent.take(changed)

    assert world.board.get().active == config_hash(changed)
    assert world.board.get().rejected is None


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


def test_slurmctld_that_dies_of_a_change_gets_the_version_before_back(world: World) -> None:
    world.start(GOOD)
    deadly = {"slurm.conf": "deadly\n"}

    world.agent.take(deadly)

    assert world.store.current() == config_hash(GOOD)
    assert (world.board.get().active, world.board.get().rejected) == (config_hash(GOOD), None)
    world.agent.tick()
    assert world.slurmctld.reconfigured == 1, "it is not up yet"
    world.slurmctld.start()
    world.agent.tick()
    assert world.slurmctld.reconfigured == 2
    assert (world.rejected.hash, world.rejected.message) == (config_hash(deadly), DIED)
    assert world.store.current() == config_hash(GOOD)
    world.slurmctld.start()
    world.agent.tick()
    assert world.slurmctld.reconfigured == 2
    assert world.board.get().active == config_hash(GOOD)
    assert world.rejected.hash == config_hash(deadly)


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


def test_another_change_takes_the_place_of_one_that_is_to_be_read_once_more(world: World) -> None:
    world.start(GOOD)
    world.agent.take({"slurm.conf": "deadly\n"})
    world.slurmctld.start()
    world.agent.take(BETTER)
    world.agent.tick()
    assert world.board.get().active == config_hash(BETTER)
    assert "deadly" not in str(world.agent.published())


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


def test_a_change_while_slurmctld_is_down_becomes_active_when_it_comes_up(world: World) -> None:
    world.start(GOOD)
    world.slurmctld.up = False

    world.agent.take(BETTER)

    assert world.slurmctld.reconfigured == 0
    assert world.board.get().pending == config_hash(BETTER)
    world.slurmctld.start()
    world.agent.tick()
    assert world.board.get().active == config_hash(BETTER)
    assert world.slurmctld.reconfigured == 0, "it has started with it"


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


def test_who_cannot_have_the_files_in_force_read_tries_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.start(GOOD)
    world.read.write_text(f"{config_hash(GOOD)}?", encoding="ascii")
    world.restart_agent()
    with monkeypatch.context() as patch:
        patch.setattr(world.slurmctld, "reconfigure", lambda: Result(code=1, stderr="no"))
        world.agent.take(GOOD)
        assert (world.board.get().active, world.board.get().pending) == (None, config_hash(GOOD))
    world.agent.tick()
    assert world.slurmctld.read == [], "not at once"
    world.clock.sleep(60)
    world.agent.tick()
    assert world.slurmctld.read == [GOOD]
    assert world.board.get().active == config_hash(GOOD)


@pytest.mark.parametrize("how", ["an agent that ended", "a silence before"])
def test_what_slurmctld_dies_of_is_gone_back_from_also_where_it_was_told_another_one_before(
    world: World, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    world.start(GOOD)
    deadly = {"slurm.conf": f"ClusterName={DEADLY}\n"}
    if how == "a silence before":
        world.slurmctld.silence = PATIENCE_SECONDS + 60
        world.agent.take(BETTER)
        world.agent.take(deadly)
        world.clock.sleep(world.slurmctld.silence)
        world.slurmctld.silence = 0
    else:
        end_before_it_is_read(world, deadly, monkeypatch)
        world.agent.take(deadly)
    for _ in range(3):
        world.agent.tick()
        world.slurmctld.start()
    assert world.store.current() == config_hash(GOOD)
    assert world.rejected.hash == config_hash(deadly)
    world.agent.tick()
    assert world.board.get().active == config_hash(GOOD)


def test_what_was_put_back_while_slurmctld_started_is_read_though_the_next_one_is_rejected(world: World) -> None:
    world.start(GOOD)
    world.slurmctld.up = False
    world.agent.take(BETTER)
    world.slurmctld.begin()
    world.agent.take(GOOD)
    world.agent.take(BAD)
    world.slurmctld.come_up()
    world.agent.tick()
    assert world.slurmctld.read == [GOOD]
    assert (world.board.get().active, world.board.get().pending) == (config_hash(GOOD), None)


def test_what_cannot_be_read_yet_by_a_slurmctld_that_comes_up_is_read_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.start(GOOD)
    world.slurmctld.up = False
    world.slurmctld.begin()
    world.agent.take(BETTER)
    world.slurmctld.come_up()
    monkeypatch.setattr(ClusterId, "obstacle", lambda *_: "slurmdbd")
    world.agent.tick()
    assert world.board.get().pending == config_hash(BETTER)
    assert world.slurmctld.reconfigured == 0
    monkeypatch.setattr(ClusterId, "obstacle", lambda *_: None)
    world.agent.tick()
    assert world.slurmctld.read == [BETTER]
    assert world.board.get().active == config_hash(BETTER)


def test_an_agent_that_restarts_beside_a_running_slurmctld_reports_it_active(world: World) -> None:
    world.start(GOOD)
    world.restart_agent()

    world.agent.take(GOOD)

    assert world.board.get().active == config_hash(GOOD)
    assert world.slurmctld.reconfigured == 0


def test_an_agent_that_restarts_and_finds_a_change_reports_the_rejection_and_what_still_runs(world: World) -> None:
    world.start(GOOD)
    world.restart_agent()

    world.agent.take(BAD)
    world.agent.tick()

    assert world.board.get().active == config_hash(GOOD)
    assert world.board.get().rejected is not None


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
