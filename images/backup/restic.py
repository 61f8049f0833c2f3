"""restic, with one repository in an S3 store: what its pods are told and see, and what it says in words that help."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from images.common.boundary import give_up_set_up
from images.common.command import Result
from images.common.files import lines_in
from images.common.jail_roots import HOMES_MARK, ROOTS
from images.common.jail_view import Bind, homes_directory, show
from images.common.mountinfo import expect_volume, follow_no_links
from images.common.process import CannotGoOnError, RefusedError, required_env

SECRET: Final = Path("/secrets/repository")
"""The Secret that the stack file names, in the first container of a pod alone."""

HANDOVER: Final = Path("/handover")
"""Memory that the containers of a pod share."""

STATE: Final = Path("/stage/volume")
"""The state volume."""

STAGE: Final = Path("/stage")
COPIES: Final = STAGE / "state"
KEYS: Final = Path("/secrets/keys")
JAIL: Final = Path("/jail")

NEVER: Final = ("proc", "sys", "dev", "run", "tmp", "var/tmp")
"""Of the jail: what each pod has of its own, and what is gone with it anyway."""

RESTIC: Final = "/usr/bin/restic"
CACHE: Final = Path("/cache")
TAG: Final = "slurmstack"
HOST: Final = "slurmstack"
"""What snapshots say that they are of: each pod has another name, and one repository is of one cluster."""

CREDENTIALS: Final = {
    "access-key-id": "AWS_ACCESS_KEY_ID", "secret-access-key": "AWS_SECRET_ACCESS_KEY", "password": "RESTIC_PASSWORD",
}  # fmt: skip
"""Key of the Secret that the stack file names -> variable in restic's environment."""

AUTHORITY: Final = "ca.crt"
"""Key of the Secret with the certificate of the authority of the store's own, where the system does not know it."""

_FIRST_ANSWER_SECONDS: Final = 60.0
"""restic itself tries for 15 minutes; so long an answer about one small object does not take."""

_ENDING_SECONDS: Final = 20.0
"""To take its lock away; Kubernetes leaves a pod 30."""

_NO_REPOSITORY: Final = 10
_WRONG_PASSWORD: Final = 12
INCOMPLETE: Final = 3
"""Exit status where a snapshot was made, but some file could not be read."""

_REFUSED: Final = ("Access Denied", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "403 Forbidden")

_SINGLE_FILES: Final = re.compile(r"There were \d+ errors")
_OF_THE_VOLUME: Final = re.compile(r"(?!.*xattr\.).*: (no space left on device|read-only file system)[\"']$")
"""A volume that takes nothing more. Attributes of one file may have no room, whatever its volume has."""


class Repository:
    """The repository of one stack."""

    def __init__(self, url: str, credentials: Path, *, region: str, cache: Path = CACHE) -> None:
        """`url`: `https://HOST[:PORT]/BUCKET/PREFIX`. `credentials`: directory with files like the Secret's keys.

        Raises RefusedError with the name of a key that is not there, or cannot be used; never with its value.
        """
        self.url = url
        self._environment = {
            "PATH": os.environ["PATH"], "TZ": "UTC", "TMPDIR": str(cache), "AWS_DEFAULT_REGION": region,
        }  # fmt: skip
        for name, variable in CREDENTIALS.items():
            file = credentials / name
            value = file.read_text(encoding="utf-8").strip() if file.is_file() else ""
            if not value or len(value.split()) > 1:
                raise RefusedError(
                    f"backup.credentials_secret: the Secret's key {name!r} is missing, empty or of several words; "
                    f"it needs {', '.join(CREDENTIALS)}"
                )
            self._environment[variable] = value
        ca = credentials / AUTHORITY
        trusted = ["--cacert", str(ca)] if ca.is_file() else []
        self._command = [RESTIC, "--repo", f"s3:{url}", "--cache-dir", str(cache), "--cleanup-cache", *trusted]

    def run(self, *arguments: str, seconds: float | None = None, stdout: int | IO[bytes] | None = None) -> Result:
        """Run restic to its end. `seconds`: at most. `stdout`: who else gets what it prints."""
        process = subprocess.Popen(
            [*self._command, "--retry-lock", "10m", *arguments],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if stdout is None else stdout,
            stderr=subprocess.PIPE,
        )
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            err += f"\nno answer within {seconds:g} s".encode()
        finally:
            if process.poll() is None:  # this program is to end, and restic's lock would stay for half an hour
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_ENDING_SECONDS)
        output, errors = (text.decode(errors="replace") for text in (out or b"", err))
        return Result(code=process.returncode, stdout=output, stderr=errors)

    def must(self, what: str, *arguments: str) -> str:
        """What restic prints. Raises CannotGoOnError: `what` could not be done, and why."""
        done = self.run(*arguments)
        if not done.ok:
            raise self.problem(what, done)
        return done.stdout

    def listed(self, snapshot: str, directory: Path) -> Iterator[bytes]:
        """What a snapshot has in a directory, each thing a line of JSON. Raises CannotGoOnError at the end."""
        command = [*self._command, "--no-lock", "ls", "--json", "--recursive", snapshot, str(directory)]
        with (
            tempfile.TemporaryFile(dir=self._environment["TMPDIR"]) as stderr,
            subprocess.Popen(
                command, env=self._environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr
            ) as process,
        ):
            assert process.stdout is not None
            yield from process.stdout
            if process.wait() != 0:
                stderr.seek(0)
                words = stderr.read().decode(errors="replace")
                raise self.problem("the backup cannot be listed", Result(code=process.returncode, stderr=words))

    def problem(self, what: str, done: Result) -> CannotGoOnError:
        """Why restic could not do it, in one message."""
        if done.code == _WRONG_PASSWORD:
            return RefusedError(
                f"{what}: the password does not open the repository {self.url}: it was made with another one. Put that "
                "into the Secret (its key 'password'), or take another backup.prefix for a new repository"
            )
        if any(word in done.stderr for word in _REFUSED):
            return RefusedError(
                f"{what}: the S3 store refuses the access key for {self.url}: look at access-key-id and "
                "secret-access-key in the Secret, and at what that key may do with the bucket"
            )
        return CannotGoOnError(f"{what}: {last_words(done)}")

    def open(self, *, make: bool, log: Callable[[str], None]) -> None:
        """See that the repository is there; `make`: an empty place becomes one. Raises CannotGoOnError."""
        done = self.run("cat", "config", "--no-lock", seconds=_FIRST_ANSWER_SECONDS)  # a lock is waited for longer
        if done.code == _NO_REPOSITORY and not any(word in done.stderr for word in _REFUSED):
            if not make:
                raise RefusedError(f"there is no repository in {self.url}; `slurmstack backup now` makes one")
            log(f"making the repository {self.url}")
            self.must("the repository could not be made", "init", "--quiet")
        elif not done.ok:
            raise self.problem("the repository cannot be opened", done)
        self.run("unlock", "--quiet")  # only what a killed one has left

    def snapshots(self) -> list[Mapping[str, Any]]:
        """All of this stack's snapshots, as restic tells them."""
        found: list[Mapping[str, Any]] = json.loads(
            self.must("the backups cannot be listed", "snapshots", "--json", "--tag", TAG)
        )
        return found


def last_words(done: Result) -> str:
    """The end of what restic has said, without its JSON."""
    lines = [_words(line) for line in lines_in(done.stderr) if line.strip()]
    return " | ".join(line for line in lines[-3:] if line) or f"restic ended with {done.code}"


def _words(line: str) -> str:
    message = _json(line)
    return str(message.get("message") or (message.get("error") or {}).get("message", "")) if message else line.strip()


def _json(line: str) -> dict[str, Any]:
    """What a line tells; empty where it is none of JSON."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def failed_files(done: Result) -> list[str]:
    """Files that restic has said something of, in words without control characters; not of those that were gone."""
    errors = [item for item in map(_json, lines_in(done.stderr)) if item.get("message_type") == "error"]
    found = [(item.get("item"), str((item.get("error") or {}).get("message", ""))) for item in errors]
    return [f"{path!a}: {why!a}" for path, why in found if "no such file or directory" not in why]


def is_done_but_for_files(done: Result) -> bool:
    """Whether a restore has gone to its end, but for single files that it names."""
    last = (lines_in(done.stderr.strip()) or [""])[-1]
    full = any(_OF_THE_VOLUME.match(line) for line in failed_files(done))
    return done.ok or (bool(_SINGLE_FILES.search(last)) and not full)


# --- The pod ----------------------------------------------------------------------------------------------------------


def repository(credentials: Path = SECRET) -> Repository:
    """The repository of the stack, as the pod's environment names it. Raises RefusedError."""
    return Repository(required_env("REPOSITORY"), credentials, region=required_env("REGION"))


def hand_over(**values: Any) -> None:
    """In the first container of a pod: leave the later ones the credentials, and values that they are told."""
    for file in (SECRET / name for name in (*CREDENTIALS, AUTHORITY)):
        if file.is_file():
            shutil.copyfile(file, HANDOVER / file.name)
            (HANDOVER / file.name).chmod(0o400)
    (HANDOVER / "told.json").write_text(json.dumps(values), encoding="utf-8")


def handed_over(*, last: bool = False) -> Repository:
    """In a later container: the repository.

    `last`: nobody needs the credentials any more. Then no file in this container has them: it reads a tree that users
    write.
    """
    found = repository(HANDOVER)
    if last:
        for name in CREDENTIALS:
            (HANDOVER / name).unlink()
    return found


def enter_jail() -> None:
    """Before restic opens paths that users write: no link in them leads anywhere, neither out of the jail nor in it.

    restic opens by path. A user who puts a link into the place of a directory in that moment would have another's files
    saved, and later restored, as his own; or have a restore write there. Raises CannotGoOnError.
    """
    expect_volume(JAIL)
    homes = homes_directory()
    if homes is not None:
        expect_volume(homes)
    try:
        follow_no_links(JAIL)
        if homes is not None:  # a part of the jail, as for users: what is saved can be put back wherever homes are
            follow_no_links(homes)
            show(JAIL, Bind(path=f"/{homes.name}", source=str(homes), make=True))
        give_up_set_up()
    except OSError as error:
        what = "links in the jail cannot be made harmless (it takes Linux 5.14 and CAP_SYS_ADMIN)"
        raise CannotGoOnError(f"{what}: {error.strerror}") from None


def read_handover() -> dict[str, Any]:
    """What the first container has left."""
    found: dict[str, Any] = json.loads((HANDOVER / "told.json").read_text(encoding="utf-8"))
    return found


def in_jail(excluded: str) -> list[str]:
    """Arguments for restic: what it leaves alone in the jail. `excluded`: paths of users, as JSON."""
    paths = [*(f"/{path}/*" for path in NEVER), *json.loads(excluded or "[]")]
    everywhere = [f"--exclude={JAIL}{root}{path}" for root in ("", f"/{ROOTS}/*/root") for path in paths]
    return [*everywhere, f"--exclude={JAIL}/{ROOTS}/{HOMES_MARK}"]


def environment(name: str, default: str = "") -> str:
    """A variable that may be left out."""
    return os.environ.get(name) or default
