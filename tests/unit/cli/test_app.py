"""The list of commands: what it says, and that it costs nothing."""

from __future__ import annotations

import pytest

from cli.app import COMMANDS, _complain, load


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_what_the_command_itself_says_first(name: str) -> None:
    own = " ".join(load(name).help.partition("\n\n")[0].split())
    assert own == COMMANDS[name][1]


def test_what_others_wrote_in_a_complaint_moves_no_cursor_and_keeps_its_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _complain("refused:\n  job 7 \x1b[2J[bold]", "ask \x07bob")
    assert capsys.readouterr().err == "error: refused:\n  job 7  [2J[bold]\nask  bob\n"
