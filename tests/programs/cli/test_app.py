"""The command in a process of its own: what it loads, its list of commands, and an output that takes nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cli.app import COMMANDS, load
from tests.stacks import ROOT


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_what_the_command_itself_says_first(name: str) -> None:
    own = " ".join(load(name).help.partition("\n\n")[0].split())
    assert own == COMMANDS[name][1]


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
        ("<&- >&- 2>&-", 0, ""),
    ],
)
def test_an_output_that_takes_nothing_gets_one_line(redirection: str, status: int, said: str) -> None:
    line = f"exec {sys.executable} -m cli.entry --help {redirection}"
    done = subprocess.run(["sh", "-c", line], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (status, said)


def test_grafana_s_builders_are_loaded_by_nobody_who_has_not_asked_for_dashboards() -> None:
    script = "import sys, components.cluster, cli.app; print('grafana_foundation_sdk' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
