"""Cgroups that jobs have left, and when the warden takes them away: directories in place of cgroups."""

from __future__ import annotations

from pathlib import Path

from images.common.kept_memory import ENDED
from tests.unit.images.kept import MIB, SCOPE, Kept, empty


def kept_with_a_step(directory: Path) -> tuple[Kept, Path]:
    """A warden with a step of job 17, and the cgroup of that job."""
    group = directory / "cgroups" / SCOPE / "job_17"
    group.mkdir(parents=True)
    kept = Kept(directory=directory, cgroups=group)
    kept.enter(5, "17")
    return kept, group


def test_what_an_idle_job_has_in_its_shared_memory_is_its_own(tmp_path: Path) -> None:
    """`salloc`, and a pause of some minutes between two steps: that has drained the node, and ended another job."""
    kept, group = kept_with_a_step(tmp_path)
    kept.warden.closed(5)
    kept.cgroups = None
    (group / "memory.stat").write_text(f"shmem {60 * MIB}\n")
    for connection in (6, 7, 8, 9):
        kept.time += 100
        kept.enter(connection, "18")
    assert not (group / ENDED).exists()
    (group / "memory.stat").unlink()
    kept.ask(10, "end 17")
    assert not group.exists()


def test_a_cgroup_that_could_not_go_at_the_job_s_end_goes_later(tmp_path: Path) -> None:
    kept, group = kept_with_a_step(tmp_path)
    kept.warden.closed(5)
    (group / "cgroup.events").write_text("populated 1\n")
    assert kept.ask(10, "end 17 now") == "ok"
    kept.cgroups = None
    for restart in (False, True):
        if restart:
            empty(group)
            kept.start()
        kept.time += 100
        kept.enter(11, "18")
        assert group.exists() != restart


def test_what_is_left_is_looked_at_again_where_who_asked_was_ended_meanwhile(tmp_path: Path) -> None:
    kept, group = kept_with_a_step(tmp_path)
    kept.warden.closed(5)
    (group / "cgroup.events").write_text("populated 1\n")
    assert kept.ask(10, "end 17") == "ok later"
    kept.cgroups = None
    empty(group)
    kept.time += 100
    kept.enter(11, "18")
    assert not group.exists()


def test_a_job_that_was_started_again_and_has_only_an_external_step_is_not_ended(tmp_path: Path) -> None:
    kept, group = kept_with_a_step(tmp_path)
    kept.warden.closed(5)
    (group / "cgroup.events").write_text("populated 1\n")
    assert kept.ask(10, "end 17") == "ok later"
    kill = group / "cgroup.kill"
    kill.write_text("")
    kept.cgroups, kept.running = None, {"17"}
    kept.time += 100
    kept.enter(11, "18")
    assert kill.read_text() == ""


def test_what_cannot_be_taken_away_keeps_no_other_job_from_starting(tmp_path: Path) -> None:
    kept, group = kept_with_a_step(tmp_path)
    kept.warden.closed(5)
    (group / "memory.stat").write_text(f"shmem {60 * MIB}\n")
    (group / ENDED).touch()
    kept.ask(10, "end 17 now")
    kept.enter(6, "18")
    kept.warden.closed(6)
    kept.cgroups = None
    for connection in (11, 12):
        kept.time += 100
        assert kept.enter(connection, "19").startswith("ok ")
    kept.log.clear()
    (tmp_path / "cells/18/in-the-way").touch()
    kept.time += 90_000
    assert kept.enter(13, "20").startswith("ok ")
    assert any(line.startswith("the cell of job 18 stays: ") for line in kept.log)


def test_a_step_tells_whose_job_it_is_and_a_cgroup_that_nobody_ends_goes_in_the_end(tmp_path: Path) -> None:
    """Where the site has an epilog of its own."""
    kept, group = kept_with_a_step(tmp_path)
    assert len(list(group.glob("of_*"))) == 1
    kept.time += 100
    kept.enter(6, "18")
    assert group.exists(), "the step is there"
    kept.warden.closed(5)
    kept.time += 100
    kept.cgroups = None
    kept.enter(7, "19")
    assert not group.exists()
