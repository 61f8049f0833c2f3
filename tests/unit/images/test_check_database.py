"""What check-database makes of the answers of a server, and what it never writes anywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from images.accounting.check_database import (
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
        return next(found, Result(code=0))


def error(number: int, text: str = "no") -> Result:
    return Result(code=1, stderr=f"ERROR {number} (HY000): {text}")


@pytest.mark.parametrize("number", [2002, 2013])
def test_a_server_that_may_answer_in_a_moment_is_unreachable(number: int) -> None:
    with pytest.raises(UnreachableError):
        check_database(storage(), Server({"CREATE TABLE": error(number)}))


def test_a_database_that_is_not_there_is_made_as_slurmdbd_would() -> None:
    server = Server({"CREATE TABLE": error(1049), "CREATE DATABASE": error(1044, "Access denied for user")})
    with pytest.raises(RefusedError, match="Access denied for user"):
        check_database(storage(), server)
    assert "CREATE DATABASE `jobs`" in server.asked


def test_a_password_that_slurmdbd_conf_cannot_hold_is_refused() -> None:
    for password in ("", "two words", 'quo"te', "ha#sh", "line\nbreak", "back\\slash"):
        with pytest.raises(RefusedError):
            with_password(CONF, password)


def test_a_password_in_an_option_file_is_quoted() -> None:
    assert 'password="a\\"b\\\\c"' in storage_of(CONF, 'a"b\\c').client_options()
