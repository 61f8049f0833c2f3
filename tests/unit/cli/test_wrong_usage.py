"""What nobody can mean is refused with one line and without a traceback, before any program or cluster is asked."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from cli.app import main
from cli.errors import REFUSED, USAGE
from tests import stacks
from tests.stacks import with_change
from tests.unit.cli.command_line import stack_file

STACKS: dict[str, dict[str, Any]] = {
    "": stacks.dev(),
    "existing": stacks.existing(),
    "full": stacks.existing_full(),
    "no accounting": with_change(stacks.existing(), "accounting.enabled", value=False),
    "no registry": with_change(stacks.existing(), "images", {}),
    "cuda": with_change(stacks.existing(), "images", {"jail": {"cuda": True}}),
    "tag": with_change(stacks.existing(), "images.tag", "prod"),
}
BOTH = "contradict each other"

CASES: dict[str, list[tuple[str, int, str]]] = {
    "": [("up --yess", USAGE, "No such option"), ("validate --markdown", USAGE, "--against FILE"),
        ("preview --markdown --json", USAGE, BOTH),
        ("render --output=", USAGE, "is empty"), ("render --output out --secrets=", USAGE, "is empty"),
        ("render --output out --secrets out/../out", USAGE, "name the same directory"),
        ("rotate mung", USAGE, "'mung' is none of munge"), ("health --yess", USAGE, "No such option"),
        ("usage --by team", USAGE, "'team' is none of account, user"),
        ("usage --start 2026-11-02 --end 2026-11-01", USAGE, "the start, 2026-11-02T00:00:00, is not before the end"),
        ("efficiency --by team", USAGE, "'team' is none of account, user, job"),
        ("logs --job 5;reboot", USAGE, "is no number of a job"),
        ("usage --json --csv", USAGE, BOTH),
        ("logs controller --job 5", USAGE, f"COMPONENT and --job {BOTH}"),
        ("logs --since soon", USAGE, "is not a time")],
    "existing": [("destroy --yes --delete-data", REFUSED, "this stack is protected"),
        ("images build --tool kaniko", USAGE, "kaniko"), ("images build --tool local --base x", USAGE, "--base"),
        ("images build --tool local --no-cache", USAGE, "--no-cache"),
        ("images push --slurm-version 26.05 --pin", USAGE, "runs Slurm 24.11")],
    "full": [("backup rehearse --version 25.05", USAGE, "--version 25.05: there is 24.11 and 26.05"),
        ("backup rehearse --version 24.11", USAGE, "24.11 to 24.11 is no upgrade"),
        ("backup rehearse --version=", USAGE, "there is 24.11 and 26.05"),
        ("backup rehearse --tag new", USAGE, "--tag is of the images of --version")],
    "no accounting": [("usage", USAGE, "accounting.enabled is false")],
    "no registry": [("images push", USAGE, "--registry")],
    "cuda": [("images build --slurm-version 26.05", USAGE, "images.jail.cuda: is not to be had with Slurm 26.05")],
    "tag": [
        (f"images {what} --slurm-version 26.05", USAGE, "'prod', names what runs: Slurm 24.11")
        for what in ("build", "push")
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("stack", "case"),
    [(stack, case) for stack, cases in CASES.items() for case in cases],
    ids=[case[0] for cases in CASES.values() for case in cases],
)
def test_it_is_said_what_is_wrong(
    stack: str,
    case: tuple[str, int, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words, status, told = case
    command = words.split(" ")
    names = 2 if command[0] in {"images", "backup"} else 1
    config = ["--config", str(stack_file(tmp_path, STACKS[stack]))]
    monkeypatch.setattr(sys, "argv", ["slurmstack", *command[:names], *config, *command[names:]])
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    assert told in printed.err
    assert (ended.value.code, printed.out) == (status, "")
    assert "Traceback" not in printed.err


@pytest.mark.parametrize("text", ["", "# only a comment\n", "- a\n", "config:\n"])
def test_a_stack_file_that_has_nothing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    file = tmp_path / "Pulumi.test.yaml"
    file.write_text(text, encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["slurmstack", "validate", "--config", str(file)])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == USAGE
    assert "has no map 'config:'" in capsys.readouterr().err
