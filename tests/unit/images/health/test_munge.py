"""munge's round trip. The outputs are those of munge 0.5.18."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from images.common.command import NO_PROGRAM, TIMED_OUT
from images.common.command import Result as Ended
from images.health.checks import munge
from images.health.contract import Node, Result, Status, Thresholds
from tests.unit.images.fakes import FakeRunner
from tests.unit.images.health.places import make_node

SUCCESS = Ended(code=0, stdout="STATUS:          0\n\n")
NO_SOCKET = 'Failed to access "/run/munge/munge.socket.2": No such file or directory (Did you start munged?)'


def check(node: Node, *, made: Ended | None = None, read: Ended = SUCCESS) -> tuple[Result, FakeRunner]:
    def make(argv: Sequence[str]) -> Ended:
        path = Path(argv[-1].removeprefix("--output="))
        assert path.parent.stat().st_mode & 0o077 == 0
        path.write_text("MUNGE:AwQDAAB4:\n")
        return made or Ended(code=0)

    runner = FakeRunner({"munge": make, "unmunge": read})
    return munge.CHECK.run(node, runner, Thresholds()), runner


def test_a_credential_that_is_understood_is_well(tmp_path: Path) -> None:
    result, runner = check(make_node(tmp_path))

    assert (result.status, result.message) == (Status.OK, "")
    path = f"{tmp_path}/state/munge/{os.getpid()}"
    assert runner.commands == [
        f"munge --no-input --restrict-uid={os.geteuid()} --output={path}",
        f"unmunge --keys=STATUS --numeric --input={path}",
    ]


@pytest.mark.parametrize("code", [0, 6, TIMED_OUT])
def test_no_credential_is_left_behind(tmp_path: Path, code: int) -> None:
    node = make_node(tmp_path)

    check(node, made=Ended(code=code))

    assert not list((node.state / "munge").iterdir())


def test_a_directory_that_others_could_read_is_closed(tmp_path: Path) -> None:
    node = make_node(tmp_path)
    (node.state / "munge").mkdir(parents=True, mode=0o755)

    assert check(node)[0].status is Status.OK


def test_a_munged_that_is_gone_is_a_fault(tmp_path: Path) -> None:
    result, runner = check(make_node(tmp_path), made=Ended(code=6, stderr=f"munge: Error: {NO_SOCKET}\n"))

    assert (result.status, result.fault) == (Status.FAIL, "node")
    assert result.message == f"munged of this pod: {NO_SOCKET}"
    assert not runner.ran("unmunge")


@pytest.mark.parametrize(
    ("code", "said"), [(6, NO_SOCKET), (14, "Invalid credential"), (18, "Unauthorized credential for client UID=0")]
)
def test_a_munged_that_does_not_understand_itself_is_a_fault(tmp_path: Path, code: int, said: str) -> None:
    result, _ = check(make_node(tmp_path), read=Ended(code=code, stderr=f"unmunge: Error: {said}\n"))

    assert (result.status, result.message) == (Status.FAIL, f"munged of this pod: {said}")


@pytest.mark.parametrize("program", ["made", "read"])
@pytest.mark.parametrize(
    "ended",
    [
        Ended(code=NO_PROGRAM, stderr="munge: no such program"),
        Ended(code=TIMED_OUT, stderr="munge: no answer within 2 s"),
        Ended(code=1, stderr='munge: Error: Failed to write to "/run/x": No space left on device'),
        Ended(code=15, stderr="unmunge: Error: Expired credential"),
        Ended(code=17, stdout="STATUS:          17\n", stderr="unmunge: Error: Replayed credential"),
        Ended(code=6, stderr="Segmentation fault"),
        Ended(code=6),
        Ended(code=-11),
        Ended(code=255, stdout="\x00\ufffd\n", stderr="?"),
    ],
)
def test_what_says_nothing_about_munged_is_not_checked(tmp_path: Path, program: str, ended: Ended) -> None:
    result, _ = check(make_node(tmp_path), **{program: ended})

    assert result.status is Status.NOT_CHECKED
    assert result.message
    assert result.fault is None


@pytest.mark.parametrize("said", ["", "STATUS:          17\n", "STATUS: \n", "\x00\ufffd", "Status 0"])
def test_garbage_is_not_checked(tmp_path: Path, said: str) -> None:
    assert check(make_node(tmp_path), read=Ended(code=0, stdout=said))[0].status is Status.NOT_CHECKED
