"""munge's round trip. The outputs are those of munge 0.5.18."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from images.common.command import NO_PROGRAM, TIMED_OUT
from images.common.command import Result as Ended
from images.common.health.contract import Node, Thresholds
from images.health.checks import munge
from tests.fakes.commands import FakeRunner
from tests.unit.images.health.places import make_node
from tests.unit.images.health.tables import Like, outcomes, words

SUCCESS = Ended(code=0, stdout="STATUS:          0\n\n")
NO_SOCKET = 'Failed to access "/run/munge/munge.socket.2": No such file or directory (Did you start munged?)'
UNAUTHORIZED = "Unauthorized credential for client UID=0"


def check(node: Node, *, made: Ended | None = None, read: Ended = SUCCESS) -> tuple[str, FakeRunner]:
    def make(argv: Sequence[str]) -> Ended:
        path = Path(argv[-1].removeprefix("--output="))
        assert path.parent.stat().st_mode & 0o077 == 0
        path.write_text("MUNGE:AwQDAAB4:\n")
        return made or Ended(code=0)

    runner = FakeRunner({"munge": make, "unmunge": read})
    return words(munge.CHECK.run(node, runner, Thresholds())), runner


def test_a_credential_that_is_understood_is_well(tmp_path: Path) -> None:
    node = make_node(tmp_path)
    (node.state / "munge").mkdir(parents=True, mode=0o755)  # and is closed to others
    said, runner = check(node)
    assert said == "ok"
    path = f"{tmp_path}/state/munge/{os.getpid()}"
    assert runner.commands == [
        f"munge --no-input --restrict-uid={os.geteuid()} --output={path}",
        f"unmunge --keys=STATUS --numeric --input={path}",
    ]


def test_a_munged_that_is_gone_is_a_fault_and_no_credential_is_left_behind(tmp_path: Path) -> None:
    node = make_node(tmp_path)
    said, runner = check(node, made=Ended(code=6, stderr=f"munge: Error: {NO_SOCKET}\n"))
    assert said == f"fail [node]: munged of this pod: {NO_SOCKET}"
    assert not runner.ran("unmunge")
    assert not list((node.state / "munge").iterdir())


@outcomes(
    "read",
    [
        (f"fail [node]: munged of this pod: {NO_SOCKET}", Ended(code=6, stderr=f"unmunge: Error: {NO_SOCKET}\n")),
        ("fail [node]: ...: Invalid credential", Ended(code=14, stderr="unmunge: Error: Invalid credential\n")),
        (f"fail [node]: ...: {UNAUTHORIZED}", Ended(code=18, stderr=f"unmunge: Error: {UNAUTHORIZED}\n")),
        ("not checked: unmunge said something else than a status: ...", Ended(code=0, stdout="STATUS:     17\n")),
    ],
)
def test_a_munged_that_does_not_understand_itself_is_a_fault(tmp_path: Path, expected: str, read: Ended) -> None:
    assert check(make_node(tmp_path), read=read)[0] == Like(expected)


def test_what_says_nothing_about_munged_is_not_checked(tmp_path: Path) -> None:
    for program, tool in (("made", "munge"), ("read", "unmunge")):
        for ended, why in [
            (Ended(code=NO_PROGRAM, stderr="munge: no such program"), f"there is no {tool} here"),
            (Ended(code=TIMED_OUT, stderr="munge: no answer within 2 s"), f"{tool} did not end in 2 s"),
            (Ended(code=1, stderr="munge: Error: No space left on device"), f"{tool} ended with 1: ..."),
            (Ended(code=15, stderr="unmunge: Error: Expired credential"), f"{tool} ended with 15: ..."),
            (Ended(code=6, stderr="Segmentation fault"), f"{tool} ended with 6: ..."),
        ]:
            assert check(make_node(tmp_path), **{program: ended})[0] == Like(f"not checked: {why}")
