"""Memory that ended jobs have left, counted in a process of its own, on directories in place of cgroups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from images.common.kept_memory import ENDED
from images.worker.kept_memory import FREED_SECONDS, KeptMemory
from tests.programs.waiting import wait_until
from tests.unit.images.kept import Jobs, empty, limit


@pytest.fixture
def node(tmp_path: Path) -> Jobs:
    return Jobs(mount=tmp_path)


def ends(kept: KeptMemory, group: Path) -> bool:
    """Ask as the epilog does, again and again."""
    wait_until(lambda: kept.end(group))
    return True


def test_a_job_has_not_ended_before_what_it_has_left_counts_for_another(node: Jobs) -> None:
    """Then slurmctld gives its memory to somebody else's job."""
    group, keeper = node.job(1, kept=30), node.job(2, limit=100)
    (group / ENDED).rmdir()
    now = [0.0]
    kept = KeptMemory(node.mount, node.log.append, lambda: now[0])
    assert not kept.end(group)
    now[0] = FREED_SECONDS
    assert ends(kept, group)
    assert limit(keeper) == 70
    assert "30 MiB" in node.log[0]
    assert kept.wakes_in() is not None
    assert KeptMemory(node.mount, node.log.append).wakes_in() is not None, "and for the next warden"


def test_a_cgroup_without_room_for_another_is_marked_all_the_same(node: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user can fill it exactly, by sockets that the job has made and another one has."""
    group, keeper, now = node.job(1, limit=40, kept=40), node.job(2, limit=100), [0.0]
    (group / ENDED).rmdir()
    make = Path.mkdir

    def of_a_full_cgroup(path: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        if path.name == ENDED and (path.parent / "memory.max").read_text() != "max":
            raise OSError(12, "Cannot allocate memory")
        make(path, mode, parents, exist_ok)

    monkeypatch.setattr(Path, "mkdir", of_a_full_cgroup)
    kept = KeptMemory(node.mount, node.log.append, lambda: now[0])
    assert not kept.end(group)
    now[0] = FREED_SECONDS
    assert ends(kept, group)
    assert limit(keeper) == 60


def test_a_round_that_fails_is_said(node: Jobs, capfd: pytest.CaptureFixture[str]) -> None:
    (node.job(1, kept=30) / "memory.stat").write_text("shmem many\n")

    def say(text: str) -> None:
        os.write(1, text.encode())

    kept = KeptMemory(node.mount, say)
    kept.look()
    assert kept._round is not None
    os.waitid(os.P_PID, kept._round[0], os.WEXITED | os.WNOWAIT)
    assert capfd.readouterr().out.startswith("what ended jobs have left is not counted: ValueError: ")


def test_rounds_go_on_until_nothing_is_kept(node: Jobs) -> None:
    group, now = node.job(1, kept=30), [0.0]
    kept = KeptMemory(node.mount, node.log.append, lambda: now[0])
    empty(group)

    def looks() -> bool:
        now[0] += 1.0
        kept.look()
        return kept.wakes_in() is None

    wait_until(looks)
    assert not group.exists()


def test_without_another_process_the_warden_goes_on_and_the_job_is_not_over(
    node: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any user can have so many that the pod may have no more."""
    group, keeper, now = node.job(1, kept=30), node.job(2, limit=100), [0.0]
    kept = KeptMemory(node.mount, node.log.append, lambda: now[0])

    def no_more() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fork", no_more)
        for _ in range(3):
            assert not kept.end(group)
            now[0] += 1.0
    assert len(node.log) == 1
    assert ends(kept, group)
    assert limit(keeper) == 70


def test_who_takes_the_warden_s_place_does_not_end_for_what_the_other_one_has_started(node: Jobs) -> None:
    node.job(1, kept=30)
    kept = KeptMemory(node.mount, node.log.append)
    kept.look()
    copy = os.fork()
    if copy == 0:
        try:
            kept.look()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(copy, 0)[1] == 0
