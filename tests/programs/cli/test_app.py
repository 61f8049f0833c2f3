"""The command in a process of its own: what it loads, and an output that takes nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.stacks import ROOT


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
