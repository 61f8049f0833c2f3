"""The stream by which end-to-end tests run commands beside slurmctld, with a process here for a container."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.e2e.shell import Shell


@pytest.fixture
def shell() -> Iterator[Shell]:
    shell = Shell(argv=["env"])
    yield shell
    shell.close()


def test_what_a_command_prints_and_how_it_ends(shell: Shell) -> None:
    assert shell.run("echo one; echo two >&2; exit 3", 10) == (3, "one\n", "two\n")
    assert shell.run("read line || echo 'no input'", 10) == (0, "no input\n", "")


def test_one_process_serves_all(shell: Shell) -> None:
    assert shell.run("echo $PPID", 10) == shell.run("echo $PPID", 10)


def test_a_container_that_ends_under_a_command_and_the_next_one(shell: Shell) -> None:
    assert shell.run("kill -9 $PPID", 10) == (137, "", "the container has ended")
    assert shell.run("echo again", 10) == (0, "again\n", "")


def test_a_container_that_is_not_there_begins_nothing() -> None:
    assert Shell(argv=["false"]).run("true", 10) is None


def test_a_command_that_takes_too_long(shell: Shell) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        shell.run("sleep 60", 0.2)
    assert shell.run("true", 10) == (0, "", "")
