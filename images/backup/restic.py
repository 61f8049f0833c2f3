"""restic, with one repository in an S3 store, and what it says in words that help."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from images.common.command import TIMED_OUT, Result
from images.common.files import lines_in
from images.common.process import CannotGoOnError, RefusedError

RESTIC: Final = "/usr/bin/restic"
CACHE: Final = Path("/cache")
TAG: Final = "slurmstack"
HOST: Final = "slurmstack"
"""What snapshots say that they are of: each pod has another name, and one repository is of one cluster."""

FIRST_ANSWER_SECONDS: Final = 60.0
"""restic itself tries for 15 minutes; so long an answer about one small object does not take."""

_ENDING_SECONDS: Final = 20.0
"""To take its lock away; Kubernetes leaves a pod 30."""

NO_REPOSITORY: Final = 10
WRONG_PASSWORD: Final = 12
INCOMPLETE: Final = 3
"""Exit status where a snapshot was made, but some file could not be read."""

_SINGLE_FILES: Final = re.compile(r"There were \d+ errors")
_OF_THE_VOLUME: Final = re.compile(r"(?!.*xattr\.).*: (no space left on device|read-only file system)[\"']$")
"""A volume that takes nothing more. Attributes of one file may have no room, whatever its volume has."""

_REFUSED: Final = ("Access Denied", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "403 Forbidden")


SECRET_KEYS: Final = {"access-key-id": "access_key", "secret-access-key": "secret_key", "password": "password"}
"""Key of the Secret that the stack file names -> field of `Credentials`."""


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """What the Secret has."""

    access_key: str
    secret_key: str
    password: str
    ca: Path | None = None
    """Certificate of the authority that the store's own is of, where the system does not know it."""

    @classmethod
    def read(cls, directory: Path) -> Credentials:
        """Raises RefusedError with the name of a key that is not there, or cannot be used; never with its value."""
        found = {}
        for name, field in SECRET_KEYS.items():
            file = directory / name
            value = file.read_text(encoding="utf-8").strip() if file.is_file() else ""
            if not value or len(value.split()) > 1:
                raise RefusedError(
                    f"backup.credentials_secret: the Secret's key {name!r} is missing, empty or of several words; "
                    "it needs access-key-id, secret-access-key and password"
                )
            found[field] = value
        ca = directory / "ca.crt"
        return cls(**found, ca=ca if ca.is_file() else None)

    def hand_over(self, directory: Path) -> None:
        """Leave them for the pod's later containers."""
        files = {name: getattr(self, field) for name, field in SECRET_KEYS.items()}
        if self.ca is not None:
            files["ca.crt"] = self.ca.read_text(encoding="utf-8")
        for name, value in files.items():
            descriptor = os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o400)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(value)


@contextmanager
def _in_memory(text: str) -> Iterator[int]:
    """A file with this text that has no name: no path leads to it, and no environment has it."""
    descriptor = os.memfd_create("credentials", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
        yield descriptor
    finally:
        os.close(descriptor)


class Repository:
    """The repository of one stack. Its credentials are handed to restic by files without a name."""

    def __init__(self, url: str, credentials: Credentials, *, region: str, cache: Path = CACHE) -> None:
        """`url`: `https://HOST[:PORT]/BUCKET/PREFIX`."""
        self.url = url
        self._credentials = credentials
        self._region = region
        self._cache = cache

    @contextmanager
    def _started(self, arguments: Sequence[str], **more: Any) -> Iterator[subprocess.Popen[bytes]]:
        mine = self._credentials
        keys = f"[default]\naws_access_key_id = {mine.access_key}\naws_secret_access_key = {mine.secret_key}\n"
        with _in_memory(mine.password) as password, _in_memory(keys) as credentials:
            environment = {
                "PATH": os.environ["PATH"],
                "TZ": "UTC",
                "TMPDIR": str(self._cache),
                "AWS_DEFAULT_REGION": self._region,
                "AWS_SHARED_CREDENTIALS_FILE": f"/proc/self/fd/{credentials}",
                "RESTIC_PASSWORD_FILE": f"/proc/self/fd/{password}",
            }
            ca = ["--cacert", str(mine.ca)] if mine.ca is not None else []
            command = [RESTIC, "--repo", f"s3:{self.url}", "--cache-dir", str(self._cache), "--cleanup-cache"]
            command += ["--retry-lock", "10m", *ca, *arguments]
            process = subprocess.Popen(
                command, env=environment, pass_fds=(password, credentials), stdin=subprocess.DEVNULL, **more
            )
            try:
                yield process
            finally:
                if process.poll() is None:  # this program is to end, and restic's lock would stay for half an hour
                    process.terminate()
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(_ENDING_SECONDS)

    def run(self, *arguments: str, seconds: float | None = None) -> Result:
        """Run restic to its end; `seconds`: at most."""
        with self._started(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            try:
                stdout, stderr = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                _, stderr = process.communicate()
                said = stderr.decode(errors="replace")
                return Result(code=TIMED_OUT, stderr=f"{said}\nno answer within {seconds:g} s")
        out, err = (text.decode(errors="replace") for text in (stdout, stderr))
        return Result(code=process.returncode, stdout=out, stderr=err)

    def pipe(self, snapshot: str, file: str, into: Sequence[str] | None) -> tuple[Result, int]:
        """Give a file of a snapshot to a program, or to nobody: what restic said, and that one's exit status."""
        target = subprocess.PIPE if into else subprocess.DEVNULL
        with self._started(("dump", snapshot, file), stdout=target, stderr=subprocess.PIPE) as process:
            code = 0
            if into:
                reader = subprocess.Popen(list(into), stdin=process.stdout)
                assert process.stdout is not None
                process.stdout.close()
                code = reader.wait()
            _, stderr = process.communicate()
        return Result(code=process.returncode, stderr=stderr.decode(errors="replace")), code

    def listed(self, snapshot: str, directory: Path) -> Iterator[str]:
        """What a snapshot has in a directory, each thing a line of JSON. Raises CannotGoOnError at the end."""
        with (
            tempfile.TemporaryFile(dir=self._cache) as stderr,
            self._started(
                ("ls", "--json", "--recursive", snapshot, str(directory)), stdout=subprocess.PIPE, stderr=stderr
            ) as process,
        ):
            assert process.stdout is not None
            for line in process.stdout:
                yield line.decode()
            if process.wait() != 0:
                stderr.seek(0)
                said = stderr.read().decode(errors="replace")
                raise self.problem("the backup cannot be listed", Result(code=process.returncode, stderr=said))

    def must(self, what: str, *arguments: str) -> str:
        """What restic prints. Raises CannotGoOnError: `what` could not be done, and why."""
        done = self.run(*arguments)
        if not done.ok:
            raise self.problem(what, done)
        return done.stdout

    def problem(self, what: str, done: Result) -> CannotGoOnError:
        """Why restic could not do it, in one message."""
        if done.code == WRONG_PASSWORD:
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
        done = self.run("cat", "config", "--no-lock", seconds=FIRST_ANSWER_SECONDS)  # a lock is waited for longer
        if done.code == NO_REPOSITORY and not any(word in done.stderr for word in _REFUSED):
            if not make:
                raise RefusedError(f"there is no repository in {self.url}; `slurmstack backup now` makes one")
            log(f"making the repository {self.url}")
            self.must("the repository could not be made", "init", "--quiet")
        elif not done.ok:
            raise self.problem("the repository cannot be opened", done)
        self.run("unlock", "--quiet")  # only what a killed one has left

    def snapshots(self) -> list[Mapping[str, Any]]:
        """All of this stack's snapshots, as restic tells them."""
        printed = self.must("the backups cannot be listed", "snapshots", "--json", "--tag", TAG)
        found: list[Mapping[str, Any]] = json.loads(printed)
        return found


def last_words(done: Result) -> str:
    """The end of what restic has said, without its JSON."""
    lines = [_said(line) for line in lines_in(done.stderr) if line.strip()]
    return " | ".join(line for line in lines[-3:] if line) or f"restic ended with {done.code}"


def _json(line: str) -> dict[str, Any]:
    """What a line tells; empty where it is none of JSON."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _said(line: str) -> str:
    found = _json(line)
    if not found:
        return line.strip()
    error = found.get("error")
    return str(found.get("message") or (error.get("message") if isinstance(error, dict) else "") or "")


def only_single_files(done: Result, failed: Sequence[str]) -> bool:
    """Whether a restore has gone to its end, but for files that it names. `failed`: as `unreadable` tells them."""
    last = (lines_in(done.stderr.strip()) or [""])[-1]
    return bool(_SINGLE_FILES.search(last)) and not any(_OF_THE_VOLUME.match(line) for line in failed)


def unreadable(done: Result) -> list[str]:
    """Files that could not be read, in words without control characters; not those that were gone meanwhile."""
    found = []
    for line in lines_in(done.stderr):
        told = _json(line)
        if told.get("message_type") == "error":
            why = str((told.get("error") or {}).get("message", ""))
            if "no such file or directory" not in why:
                found.append(f"{told.get('item')!a}: {why!a}")
    return found
