"""Records of daemons: nothing of somebody else is ever taken for ours."""

from __future__ import annotations

import os

import pytest

from local import cgroups, processes


def _record(pid: int, **changes: object) -> processes.Record:
    values = {
        "pid": pid,
        "start_ticks": processes.start_ticks(pid),
        "boot_id": processes.boot_id(),
        "started_at": 0.0,
        **changes,
    }
    return processes.Record(**values)  # type: ignore[arg-type]


def test_a_recorded_process_that_runs_is_alive() -> None:
    assert _record(os.getpid()).is_alive()


def test_another_process_with_the_same_id_is_not_taken_for_ours() -> None:
    assert not _record(os.getpid(), start_ticks=1).is_alive()


def test_a_record_from_before_a_reboot_is_dead_even_if_the_numbers_match() -> None:
    assert not _record(os.getpid(), boot_id="another").is_alive()


def _stat(state: str, *, threads: int, name: str = "true") -> str:
    numbers = [str(number) for number in range(4, 53)]
    numbers[20 - 4] = str(threads)
    return f"42 ({name}) {state} {' '.join(numbers)}"


def test_the_start_time_is_read_behind_a_name_with_parentheses() -> None:
    assert cgroups.start_ticks(_stat("S", threads=1, name="a) b")) == 22


def test_a_zombie_has_ended_when_the_last_of_its_threads_has() -> None:
    """Until then its ports are taken: what is started in its place would find them in use."""
    assert cgroups.start_ticks(_stat("Z", threads=1)) is None
    assert cgroups.start_ticks(_stat("Z", threads=2)) == 22


def test_down_in_another_directory_cannot_reach_this_clusters_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURMSTACK_LOCAL_DIR", "/srv/one")
    first = cgroups.root_name()
    monkeypatch.setenv("SLURMSTACK_LOCAL_DIR", "/srv/two")
    assert cgroups.root_name() != first
