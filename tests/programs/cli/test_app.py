"""The command in a process of its own: what it loads, its list of commands, and an output that takes nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.app import COMMANDS, _complain, load
from tests.stacks import ROOT


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_what_the_command_itself_says_first(name: str) -> None:
    own = " ".join(load(name).help.partition("\n\n")[0].split())
    assert own == COMMANDS[name][1]


def test_what_others_wrote_in_a_complaint_moves_no_cursor_and_keeps_its_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _complain("refused:\n  job 7 \x1b[2J[bold]", "ask \x07bob")
    assert capsys.readouterr().err == "error: refused:\n  job 7  [2J[bold]\nask  bob\n"


SLOW = ("pulumi", "pulumi_kubernetes", "cryptography", "yaml", "config.cluster", "local.cluster")
"""What takes long to load, and only some commands need."""


def test_help_loads_nothing_that_is_slow() -> None:
    script = (
        "import sys\nsys.argv = ['slurmstack', '--help']\nfrom cli.app import main\n"
        "try:\n    main()\nexcept SystemExit:\n    print(*sys.modules, sep='\\n', file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert all(name in done.stdout for name in COMMANDS)
    assert not set(SLOW) & set(done.stderr.split())


@pytest.mark.parametrize("words", [["status", "--help"], ["login", "--help"], ["health", "--help"]])
def test_commands_that_only_look_need_no_pulumi(words: list[str]) -> None:
    script = (
        f"import sys\nsys.argv = ['slurmstack', *{words!r}]\nfrom cli.app import main\n"
        "try:\n    main()\nexcept SystemExit:\n    print(*sys.modules, sep='\\n', file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "Usage" in done.stdout
    assert not {"pulumi", "pulumi_kubernetes"} & set(done.stderr.split())


@pytest.mark.parametrize(
    ("redirection", "status", "said"),
    [
        (">/dev/full", 1, "error: the output cannot be written: No space left on device\n"),
        (">&-", 0, ""),
        ("2>&-", 0, ""),
        ("<&- >&- 2>&-", 0, ""),
        (">/dev/full 2>&1", 1, ""),
    ],
)
def test_an_output_that_takes_nothing_gets_one_line(redirection: str, status: int, said: str) -> None:
    line = f"exec {sys.executable} -m cli.entry --help {redirection}"
    done = subprocess.run(["sh", "-c", line], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (status, said)


def test_a_letter_that_the_terminal_does_not_have_ends_nothing(tmp_path: Path) -> None:
    """As in a name of a job, an account or a reason, on one with ISO-8859-1."""
    stack = tmp_path / "Pulumi.日.yaml"
    stack.write_bytes((ROOT / "Pulumi.dev.yaml").read_bytes())
    done = subprocess.run(
        [sys.executable, "-m", "cli.entry", "validate", "--config", str(stack)],
        cwd=ROOT, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "iso-8859-1"}, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"Pulumi.?.yaml" in done.stdout


def test_status_loads_what_logs_in_and_templates_only_where_they_are_needed() -> None:
    code = "import sys, cli.commands.status; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "cli.status.read" in loaded.split()
    assert not {"cryptography", "jinja2", "pulumi", "cli.access.login"} & set(loaded.split())


def test_grafana_s_builders_are_loaded_by_nobody_who_has_not_asked_for_dashboards() -> None:
    script = "import sys, components.cluster, cli.app; print('grafana_foundation_sdk' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
