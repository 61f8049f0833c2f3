"""Namespaces for containers in jobs: who makes them, in which order, and what becomes of whoever does not answer."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from images.common.mountinfo import expect_done
from images.worker import namespaces
from images.worker.namespaces import make

OWNER = (10001, 10002)


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the user's process is asked for, in place of what takes rights."""
    file = tmp_path / "notes"
    for name in ("leave_for", "become", "own_namespaces"):
        monkeypatch.setattr(namespaces, name, lambda *_, name=name: file.open("a").write(f"{name}\n"))
    monkeypatch.setattr(namespaces, "_write_maps", lambda *_: None)
    return file


def children() -> str:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text()


def test_nothing_of_the_helper_s_is_open_in_the_user_s_process(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/etc/passwd").open() as file:
        os.set_inheritable(file.fileno(), True)
        numbers = [0, 1, 2, file.fileno()]
        is_open = lambda number: Path(f"/proc/self/fd/{number}").exists()  # noqa: E731
        monkeypatch.setattr(namespaces, "leave_for", lambda _: notes.write_text(f"{[*filter(is_open, numbers)]}"))
        for number in make(Path("/cell"), OWNER):
            os.close(number)
    assert notes.read_text().startswith("[]")


@pytest.mark.parametrize(
    ("does", "told"),
    [
        (lambda *_: 1 / 0, "was ended"),
        (lambda *_: os.kill(os.getpid(), signal.SIGKILL), "was ended"),
        (lambda *_: os.kill(os.getpid(), signal.SIGSTOP), r"did not do so within 0\.3 s"),
        (lambda *_: expect_done(-1, "become"), "cannot become"),
    ],
    ids=["breaks", "is ended by its user", "is stopped by its user", "may not"],
)
@pytest.mark.usefixtures("notes")
def test_a_process_that_does_not_make_them_is_the_last_and_not_waited_for_long(
    monkeypatch: pytest.MonkeyPatch, does: Callable[..., object], told: str
) -> None:
    monkeypatch.setattr(namespaces, "become", does)
    monkeypatch.setattr(namespaces, "own_namespaces", lambda: pytest.fail("it goes on"))
    monkeypatch.setattr(namespaces, "PATIENCE", 0.3)
    before = children()
    with pytest.raises(OSError, match=told):
        make(Path("/cell"), OWNER)
    assert children() == before, "and is ended"
