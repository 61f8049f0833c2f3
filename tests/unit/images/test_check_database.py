"""What check-database makes of the answers of a server, and what it never writes anywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from images.accounting.check_database import (
    Answer,
    Storage,
    UnreachableError,
    check_database,
    storage_of,
    with_password,
)
from images.common.command import Result
from images.common.process import RefusedError

CONF = """\
# slurmdbd
StorageHost=db.example
StoragePort=3307
StorageUser=acct
StorageLoc=jobs
StorageParameters=SSL_CA=/keys/ca.crt,SSL_CERT=/keys/tls.crt
"""


def storage() -> Storage:
    return storage_of(CONF, "s3cret")


class Server:
    """Answers statements by their beginning."""

    def __init__(self, answers: Mapping[str, Result]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def __call__(self, argv: Sequence[str], *, timeout: float = 10.0, env: Mapping[str, str] | None = None) -> Result:
        del timeout, env
        assert "s3cret" not in " ".join(argv), "it would be seen in the list of processes"
        statement = argv[-1].removeprefix("--execute=")
        self.asked.append(statement)
        found = (result for beginning, result in self.answers.items() if statement.startswith(beginning))
        default = Result(code=0, stdout="11.8.6-MariaDB" if statement == "SELECT VERSION()" else "")
        return next(found, default)


def check(answers: Mapping[str, Result], release: str = "24.11") -> Answer:
    return check_database(storage(), release=release, runner=Server(answers))


def error(number: int, text: str = "no") -> Result:
    return Result(code=1, stderr=f"ERROR {number} (HY000): {text}")


@pytest.mark.parametrize("number", [2002, 2005, 1040, 2013])
def test_a_server_that_may_answer_in_a_moment_is_unreachable(number: int) -> None:
    with pytest.raises(UnreachableError):
        check({"SELECT VERSION": error(number)})


@pytest.mark.parametrize(
    ("message", "statement", "answer"),
    [
        ("is MySQL 5.6.51: slurmdbd needs MariaDB 10.2.1", "SELECT VERSION", Result(code=0, stdout="5.6.51")),
        ("is MariaDB 10.1.48", "SELECT VERSION", Result(code=0, stdout="10.1.48-MariaDB")),
        ("GRANT ALL PRIVILEGES ON jobs.*", "CREATE PROCEDURE", error(1044)),
    ],
)
def test_what_cannot_work_is_named(message: str, statement: str, answer: Result) -> None:
    """What a real server of ours answers is in tests/slurm/test_database.py; these are others."""
    with pytest.raises(RefusedError) as refused:
        check({statement: answer})
    assert message in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_a_release_that_is_not_in_the_table_is_left_to_slurmdbd_itself() -> None:
    answers = {"SHOW TABLES": Result(code=0, stdout="x"), "SELECT MAX": Result(code=0, stdout="99")}
    assert check(answers, release="27.11").schema == 99


def test_a_database_that_is_not_there_is_made_as_slurmdbd_would() -> None:
    server = Server({"SELECT VERSION": error(1049), "CREATE DATABASE": error(1044)})
    with pytest.raises(RefusedError, match="not enough rights"):
        check_database(storage(), release="24.11", runner=server)
    assert "CREATE DATABASE `jobs`" in server.asked


def test_a_password_that_slurmdbd_conf_cannot_hold_is_refused() -> None:
    for password in ("", "two words", 'quo"te', "ha#sh", "line\nbreak", "back\\slash"):
        with pytest.raises(RefusedError):
            with_password(CONF, password)


def test_a_password_in_an_option_file_is_quoted() -> None:
    assert 'password="a\\"b\\\\c"' in storage_of(CONF, 'a"b\\c').client_options()
