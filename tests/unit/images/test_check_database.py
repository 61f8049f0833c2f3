"""What check-database makes of the answers of a server, and what it never writes anywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from images.accounting.check_database import DatabaseCheck, UnreachableError, await_database
from images.accounting.conf import Storage, storage_of, with_password
from images.common.command import Result
from images.common.process import RefusedError
from tests.fakes.commands import FakeClock

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


def check(answers: Mapping[str, Result], release: str = "24.11") -> DatabaseCheck:
    return DatabaseCheck(storage(), release=release, runner=Server(answers))


def error(number: int, text: str = "no") -> Result:
    return Result(code=1, stderr=f"ERROR {number} (HY000): {text}")


def test_a_new_database_is_fine() -> None:
    answer = check({})()
    assert (answer.server, answer.schema) == ("MariaDB 11.8.6", None)


@pytest.mark.parametrize("number", [2002, 2005, 1040, 2013])
def test_a_server_that_may_answer_in_a_moment_is_unreachable(number: int) -> None:
    with pytest.raises(UnreachableError):
        check({"SELECT VERSION": error(number)})()


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"SELECT VERSION": error(1045, "Access denied")}, "refuses user 'acct': ERROR 1045"),
        ({"SELECT VERSION": error(2026, "certificate verify failed")}, "no TLS with the database at db.example:3307"),
        ({"CREATE TABLE": error(1142)}, "'acct' has not enough rights"),
        ({"CREATE PROCEDURE": error(1044)}, "GRANT ALL PRIVILEGES ON jobs.*"),
        ({"SELECT VERSION": Result(code=0, stdout="5.6.51")}, "is MySQL 5.6.51: slurmdbd needs MariaDB 10.2.1"),
        ({"SELECT VERSION": Result(code=0, stdout="10.1.48-MariaDB")}, "is MariaDB 10.1.48"),
        (
            {"SHOW TABLES": Result(code=0, stdout="x"), "SELECT MAX": Result(code=0, stdout="17")},
            "newer schema (17) than Slurm 24.11 knows (16)",
        ),
    ],
)
def test_what_cannot_work_is_named(answers: Mapping[str, Result], message: str) -> None:
    with pytest.raises(RefusedError) as refused:
        check(answers)()
    assert message in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_a_release_that_is_not_in_the_table_is_left_to_slurmdbd_itself() -> None:
    answers = {"SHOW TABLES": Result(code=0, stdout="x"), "SELECT MAX": Result(code=0, stdout="99")}
    assert check(answers, release="27.11")().schema == 99


def test_a_database_that_is_not_there_is_made_as_slurmdbd_would() -> None:
    server = Server({"SELECT VERSION": error(1049), "CREATE DATABASE": error(1044)})
    with pytest.raises(RefusedError, match="not enough rights"):
        DatabaseCheck(storage(), release="24.11", runner=server)()
    assert "CREATE DATABASE `jobs`" in server.asked


def test_it_waits_for_a_bounded_time_and_says_what_for() -> None:
    lines: list[str] = []
    with pytest.raises(RefusedError, match="could not be reached for 120 s"):
        await_database(check({"SELECT": error(2002)}), "db:1", lines.append, seconds=120, clock=FakeClock())
    assert lines[0].startswith("waiting for the database at db:1: ERROR 2002")
    assert len(lines) == 12, "every ten seconds"


def test_tls_is_asked_for_as_slurmdbd_does() -> None:
    options = storage().client_options()
    assert "ssl-ca=/keys/ca.crt\nssl-cert=/keys/tls.crt\n" in options
    assert "skip-ssl-verify-server-cert" not in options


@pytest.mark.parametrize("password", ["", "two words", 'quo"te', "ha#sh", "line\nbreak", "back\\slash"])
def test_a_password_that_slurmdbd_conf_cannot_hold_is_refused(password: str) -> None:
    with pytest.raises(RefusedError):
        with_password(CONF, password)


def test_a_password_in_an_option_file_is_quoted() -> None:
    assert 'password="a\\"b\\\\c"' in storage_of(CONF, 'a"b\\c').client_options()
