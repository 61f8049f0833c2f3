"""A backup of the state while another controller takes it over."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from images.backup import save, state
from images.common import terms
from images.common.process import CannotGoOnError


class Snapshots:
    """Of restic: what was saved by each, and what happens meanwhile."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        self.meanwhile = meanwhile
        self.made: list[set[str]] = []

    def snapshot(self, part: str, *what: str) -> None:
        assert part == "state"
        self.meanwhile()
        files = {path.name for one in map(Path, what) for path in ([one, *one.iterdir()] if one.exists() else [])}
        self.made.append(files)
        if missing := [one for one in what if not Path(one).exists()]:
            raise CannotGoOnError(f"state could not be saved: {missing}")


@pytest.fixture
def volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(save, "STATE", tmp_path / "volume")
    monkeypatch.setattr(save, "COPIES", tmp_path / "state")
    monkeypatch.setattr(state, "_PAUSE", 0.001)
    directory = tmp_path / "volume/term-7"
    (directory / "hash.1/job.11").mkdir(parents=True)
    for name in ("job_state", "node_state"):
        (directory / name).write_text(name)
    return directory.parent


def quiet(_: str) -> None:
    """A log that nobody reads."""


def taken(volume: Path, meanwhile: Callable[[], None] = lambda: None) -> tuple[bool, list[set[str]]]:
    saving: Any = Snapshots(meanwhile)
    log: Any = quiet
    return save.take_state(saving, log), saving.made


def take_over(volume: Path) -> None:
    terms.take_over(8, (os.getuid(), os.getgid()), volume)


def test_the_state_of_the_term_is_saved_with_its_scripts(volume: Path) -> None:
    done, made = taken(volume)
    assert done
    assert made == [{"state", "job_state", "node_state", "hash.1", "job.11"}]


def test_scripts_that_were_taken_over_before_they_were_read_are_read_again(volume: Path) -> None:
    done, _ = taken(volume, lambda: take_over(volume))
    assert not done, "restic has found no scripts"
    assert taken(volume)[0]


def test_files_that_were_taken_over_while_they_were_copied_are_read_again(
    volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue was there, and nodes are not any more: by itself that is no error."""
    copy = state._copy

    def copy_and_lose(source: Path, target: Path) -> bool:
        found = copy(source, target)
        if source == volume / "term-7/job_state":
            take_over(volume)
        return found

    monkeypatch.setattr(state, "_copy", copy_and_lose)
    done, made = taken(volume)
    assert (done, made) == (False, [])
    done, made = taken(volume)
    assert done
    assert made[0] >= {"job_state", "node_state"}


def test_what_fails_for_another_reason_fails(volume: Path) -> None:
    (volume / "term-7/job_state").rename(volume / "term-7/job_state.new")
    with pytest.raises(CannotGoOnError, match="is not there"):
        taken(volume)
