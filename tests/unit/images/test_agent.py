"""The config agent's decisions."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from images.common.command import TIMED_OUT, Result
from images.controller.agent import (
    DIED,
    LOOK_AGAIN_SECONDS,
    PATIENCE_SECONDS,
    SILENT,
    SURVIVAL_SECONDS,
    Agent,
    initial_status,
)
from images.controller.check import Verdict
from images.controller.publish import Files, Store, config_hash
from images.controller.server import StatusBoard
from tests.fakes.commands import FakeClock

GOOD = {"slurm.conf": "ClusterName=a\n"}
BETTER = {"slurm.conf": "ClusterName=a\nMaxJobCount=5\n"}
SMALL = {"slurm.conf": "ClusterName=a\nMaxJobCount=1\n"}
BAD = {"slurm.conf": "ClusterNmae=a\n"}
COMPLAINT = "error: Parsing error at unrecognized key: ClusterNmae"


class FakeSlurmctld:
    """Dies of files that contain `deadly`, when it reads them."""

    def __init__(self, store: Store, clock: FakeClock) -> None:
        self.up = False
        self.store = store
        self.clock = clock
        self.reconfigured = 0
        self.silence = 0.0
        """For how many seconds it waits for slurmdbd when it reads its files."""
        self.answers_at = 0.0

    def is_up(self) -> bool:
        return self.up and self.clock.now() >= self.answers_at

    def listens(self) -> bool:
        return self.up

    def start(self) -> None:
        self.up = "deadly" not in (self.store.current_link / "slurm.conf").read_text()

    def reconfigure(self) -> Result:
        self.reconfigured += 1
        self.answers_at = self.clock.now() + self.silence
        self.start()
        return Result(code=0)


class World:
    """An agent with its surroundings."""

    def __init__(self, directory: Path) -> None:
        self.store = Store(directory / "store")
        self.ready = directory / "run/ready"
        self.verdicts: dict[str, Verdict] = {}
        self.log: list[str] = []
        self.clock = FakeClock()
        self.slurmctld = FakeSlurmctld(self.store, self.clock)
        self.full = True
        """Whether slurmctld holds more than SMALL allows."""
        self.restart_agent()

    def restart_agent(self) -> None:
        self.board = StatusBoard(initial_status("24.11.5"))
        self.agent = Agent(
            store=self.store,
            check=self.check,
            slurmctld=self.slurmctld,
            board=self.board,
            log=self.log.append,
            ready=self.ready,
            clock=self.clock,
            too_small=lambda files, _before: "too small" if self.full and files == SMALL else None,
        )

    def check(self, files: Files) -> Verdict:
        if "ClusterNmae" in files["slurm.conf"]:
            return Verdict(starts=False, complaints=(COMPLAINT, "fatal: Unable to process configuration file"))
        return self.verdicts.get(config_hash(files), Verdict(starts=True, complaints=()))

    def start(self) -> None:
        self.agent.take(GOOD)
        self.slurmctld.start()
        self.agent.tick()


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
    world.start()

    assert world.board.get().active == config_hash(GOOD)
    assert world.board.get().pending is None


def test_a_first_bad_configuration_keeps_slurmctld_waiting(world: World) -> None:
    world.agent.take(BAD)

    assert not world.ready.exists()
    rejected = world.board.get().rejected
    assert rejected is not None
    assert COMPLAINT in rejected.message


def test_a_bad_configuration_at_boot_starts_the_last_good_one(world: World) -> None:
    world.start()
    world.ready.unlink()
    world.restart_agent()

    world.agent.take(BAD)
    world.slurmctld.start()
    world.agent.tick()

    assert world.ready.exists()
    assert world.board.get().active == config_hash(GOOD)
    rejected = world.board.get().rejected
    assert rejected is not None
    assert rejected.hash == config_hash(BAD)


def test_a_good_change_is_published_and_read(world: World) -> None:
    world.start()

    world.agent.take(BETTER)

    assert world.board.get().active == config_hash(BETTER)
    assert world.slurmctld.reconfigured == 1


def test_a_bad_change_never_reaches_slurmctld(world: World) -> None:
    world.start()

    world.agent.take(BAD)

    assert world.slurmctld.reconfigured == 0
    assert world.store.current() == config_hash(GOOD)
    assert world.board.get().active == config_hash(GOOD)
    rejected = world.board.get().rejected
    assert rejected is not None
    assert rejected.message.splitlines() == [COMPLAINT, "fatal: Unable to process configuration file"]


def test_a_change_back_to_the_active_version_clears_the_rejection_without_a_reconfigure(world: World) -> None:
    world.start()
    world.agent.take(BAD)

    world.agent.take(GOOD)

    assert world.board.get().rejected is None
    assert world.board.get().pending is None
    assert world.slurmctld.reconfigured == 0


def test_slurmctld_that_is_only_slow_to_answer_keeps_the_change(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """On an overloaded machine each question about it takes its whole time limit of seconds."""
    world.start()
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
    world.start()
    world.slurmctld.silence = seconds
    changed = {"slurm.conf": "ClusterName=other\n"}

    world.agent.take(changed)

    rejected = world.board.get().rejected
    if taken:
        assert (world.board.get().active, rejected) == (config_hash(changed), None)
    else:
        assert rejected is not None
        assert rejected.message == SILENT
        assert world.store.current() == config_hash(GOOD)


def test_slurmctld_that_dies_of_a_change_gets_the_version_before_back(world: World) -> None:
    world.start()
    deadly = {"slurm.conf": "deadly\n"}

    world.agent.take(deadly)

    assert world.store.current() == config_hash(GOOD)
    assert (world.board.get().active, world.board.get().rejected) == (config_hash(GOOD), None)
    world.agent.tick()
    assert world.slurmctld.reconfigured == 1, "it is not up yet"
    world.slurmctld.start()
    world.agent.tick()
    assert world.slurmctld.reconfigured == 2
    rejected = world.board.get().rejected
    assert rejected is not None
    assert (rejected.hash, rejected.message) == (config_hash(deadly), DIED)
    assert world.store.current() == config_hash(GOOD)
    world.slurmctld.start()
    world.agent.tick()
    assert world.slurmctld.reconfigured == 2
    assert world.board.get().active == config_hash(GOOD)
    assert world.board.get().rejected == rejected


def test_slurmctld_that_ends_by_chance_when_it_reads_a_change_reads_it_once_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.start()
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
    world.start()
    world.agent.take({"slurm.conf": "deadly\n"})
    world.slurmctld.start()
    world.agent.take(BETTER)
    world.agent.tick()
    assert world.board.get().active == config_hash(BETTER)
    assert "deadly" not in str(world.agent.published())


def test_complaints_that_the_active_version_has_too_are_nothing_new(world: World) -> None:
    old = Verdict(starts=True, complaints=("error: old complaint",))
    world.verdicts = {config_hash(GOOD): old, config_hash(BETTER): old}
    world.start()

    world.agent.take(BETTER)

    assert world.board.get().active == config_hash(BETTER)


def test_a_new_complaint_is_a_rejection_even_where_slurmctld_starts(world: World) -> None:
    world.verdicts = {config_hash(BETTER): Verdict(starts=True, complaints=("error: Ignoring invalid QOS",))}
    world.start()

    world.agent.take(BETTER)

    assert world.board.get().active == config_hash(GOOD)
    rejected = world.board.get().rejected
    assert rejected is not None
    assert rejected.message == "error: Ignoring invalid QOS"


def test_a_change_while_slurmctld_is_down_becomes_active_when_it_comes_up(world: World) -> None:
    world.start()
    world.slurmctld.up = False

    world.agent.take(BETTER)

    assert world.slurmctld.reconfigured == 0
    assert world.board.get().pending == config_hash(BETTER)
    world.slurmctld.start()
    world.agent.tick()
    assert world.board.get().active == config_hash(BETTER)


def test_an_agent_that_restarts_beside_a_running_slurmctld_reports_it_active(world: World) -> None:
    world.start()
    world.restart_agent()

    world.agent.take(GOOD)

    assert world.board.get().active == config_hash(GOOD)
    assert world.slurmctld.reconfigured == 0


def test_an_agent_that_restarts_and_finds_a_change_reports_the_rejection_and_what_still_runs(world: World) -> None:
    world.start()
    world.restart_agent()

    world.agent.take(BAD)
    world.agent.tick()

    assert world.board.get().active == config_hash(GOOD)
    assert world.board.get().rejected is not None


def test_what_scontrol_itself_cannot_read_is_taken_back_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.start()
    refusal = Result(code=1, stderr="scontrol: fatal: Unable to process configuration file")
    monkeypatch.setattr(world.slurmctld, "reconfigure", lambda: refusal)

    world.agent.take(BETTER)

    assert world.store.current() == config_hash(GOOD)
    rejected = world.board.get().rejected
    assert rejected is not None
    assert "Unable to process configuration file" in rejected.message


def test_a_slow_answer_to_the_reconfiguration_is_no_refusal(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.start()
    questions: list[str] = []

    def reconfigure() -> Result:
        questions.append("scontrol reconfigure")
        return Result(code=TIMED_OUT)

    monkeypatch.setattr(world.slurmctld, "reconfigure", reconfigure)

    world.agent.take(BETTER)

    assert world.board.get().active == config_hash(BETTER)
    assert len(questions) == 2, "it may have answered before it read them: once more, and not for ever"


def test_a_limit_that_is_too_small_is_taken_when_it_no_longer_is(world: World) -> None:
    world.start()
    world.agent.take(SMALL)
    world.full = False
    world.agent.tick()
    assert world.board.get().active == config_hash(GOOD), "it is looked at every half minute only"

    world.clock.sleep(LOOK_AGAIN_SECONDS)
    world.agent.tick()

    assert world.store.current() == world.board.get().active == config_hash(SMALL)
    assert world.board.get().rejected is None


@pytest.mark.parametrize("restarts", [True, False])
def test_a_limit_that_is_too_small_is_not_what_slurmctld_starts_with(world: World, *, restarts: bool) -> None:
    world.start()
    world.slurmctld.up = False
    if restarts:
        world.ready.unlink()

    world.agent.take(SMALL)

    assert world.store.current() == config_hash(GOOD)
    assert world.ready.exists(), "slurmctld starts with the old ones"


def test_a_limit_that_is_too_small_for_what_runs_never_reaches_slurmctld(world: World) -> None:
    world.start()

    world.agent.take(SMALL)

    assert world.store.current() == world.board.get().active == config_hash(GOOD)
    rejected = world.board.get().rejected
    assert rejected is not None
    assert rejected.message == "too small"


def test_a_full_volume_is_named_and_the_change_is_taken_when_there_is_room(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.start()
    before = world.store.current()
    with monkeypatch.context() as patch:
        patch.setattr(Store, "_write", full)
        world.agent.take(BETTER)
        status = world.board.get()
        assert status.rejected is not None
        assert "the volume controller-state is full" in status.rejected.message
        assert "slurmstack:controller: {storage: ...}" in status.rejected.message
        assert world.store.current() == before
        world.clock.sleep(LOOK_AGAIN_SECONDS)
        world.agent.tick()
        assert world.store.current() == before

    world.clock.sleep(LOOK_AGAIN_SECONDS)
    world.agent.tick()

    assert world.board.get().active == config_hash(BETTER)
    assert world.board.get().rejected is None


def test_a_full_volume_does_not_keep_slurmctld_from_what_it_ran_with(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.start()
    monkeypatch.setattr(Store, "_write", full)
    world.restart_agent()
    world.ready.unlink()

    world.agent.take(BETTER)

    assert world.ready.exists(), "slurmctld may start"


def test_a_first_configuration_waits_for_room(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
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
