"""What the warden leaves to a process of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from images.worker.cells import MUCH, _free_elsewhere, has_ended
from tests.unit.images.kept import Kept


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(directory=tmp_path)


def test_the_end_of_a_job_waits_for_a_full_dev_shm_and_the_warden_does_not(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel frees it in who takes it away last: for hundreds of GiB that is minutes, for all steps of the node."""
    asked: list[int] = []

    def has_ended(child: int) -> bool:
        asked.append(child)
        return len(asked) > 1

    monkeypatch.setattr("images.worker.cells.has_ended", has_ended)
    kept.enter(5, "17")
    kept.warden.closed(5)
    kept.mounts.filled = MUCH
    assert kept.ask(9, "end 17") == "ok later"
    assert not kept.mounts.mounted
    assert kept.ask(9, "end 17") == "ok"
    assert os.waitpid(asked[0], 0) == (asked[0], 0)
    assert len(set(asked)) == 1


def test_who_frees_it_is_forgotten_also_where_nobody_asks_again(kept: Kept) -> None:
    kept.enter(5, "17")
    kept.enter(6, "18")
    kept.mounts.filled = MUCH
    assert kept.ask(9, "end 17 now") == "ok"
    child = kept.cells._freeing["17"]
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    kept.mounts.filled = 0
    assert kept.ask(9, "end 18 now") == "ok"
    with pytest.raises(ChildProcessError):
        os.waitpid(child, os.WNOHANG)


def test_who_frees_it_has_nothing_else_open() -> None:
    """Others wait for the end of what the warden has open."""
    read, write = os.pipe()
    seen, other = os.pipe()
    child = _free_elsewhere(write)
    os.close(other)
    assert os.read(seen, 1) == b"", "the child has not got it"
    assert os.read(read, 1) == b"", "both have closed it"
    assert os.waitpid(child, 0) == (child, 0)
    assert has_ended(child)
