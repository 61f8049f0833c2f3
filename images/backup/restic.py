"""restic, with the repository and the keys that are in the container's environment; and the way into the jail."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import IO, Any, Final

from images.common.boundary import give_up_set_up
from images.common.command import Result
from images.common.files import lines_in
from images.common.jail_roots import HOMES_MARK, ROOTS
from images.common.jail_view import Bind, homes_directory, show
from images.common.mountinfo import expect_volume, follow_no_links
from images.common.process import CannotGoOnError

STAGE: Final = Path("/stage")
STATE: Final = STAGE / "volume"
"""The state volume."""

COPIES: Final = STAGE / "state"
KEYS: Final = Path("/secrets/keys")
STACK_FILE: Final = Path("/secrets/stack-file")
JAIL: Final = Path("/jail")

NEVER: Final = ("proc", "sys", "dev", "run", "tmp", "var/tmp")
"""Of the jail: what each pod has of its own, and what is gone with it anyway."""

RESTIC: Final = "/usr/bin/restic"
CACHE: Final = Path("/cache")
TAG: Final = "slurmstack"
HOST: Final = "slurmstack"
"""What snapshots say that they are of: each pod has another name, and one repository is of one cluster."""

INCOMPLETE: Final = 3
"""Exit status where a snapshot was made, but some file could not be read."""

_CREDENTIALS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "RESTIC_PASSWORD")
_AUTHORITY: Final = Path("/secrets/repository/ca.crt")
"""Certificate of the authority of the store's own, where the Secret has one."""

_NO_REPOSITORY: Final = 10
_FIRST_ANSWER: Final = ("timeout", "--signal=KILL", "60")
"""restic itself tries for 15 minutes; so long an answer about one small object does not take."""


def call(*arguments: str, stdout: int | IO[bytes] | None = None, limit: tuple[str, ...] = ()) -> Result:
    """Run restic to its end. `stdout`: who else gets what it prints. `limit`: a command before it."""
    env = {
        **os.environ,
        **{key: os.environ.get(key, "").strip() for key in _CREDENTIALS},
    }  # an editor adds a line's end
    trusted = ["--cacert", str(_AUTHORITY)] if _AUTHORITY.is_file() else []
    kib = int(os.environ.get("BANDWIDTH") or 0) // 1024
    slowly = [f"--limit-upload={kib}", f"--limit-download={kib}"] if kib else []
    process = subprocess.Popen(
        [*limit, RESTIC, "--cleanup-cache", "--retry-lock=10m", *trusted, *slowly, *arguments],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if stdout is None else stdout,
        stderr=subprocess.PIPE,
    )
    try:
        out, err = process.communicate()
    finally:  # where this program is to end: restic's lock would stay for half an hour
        process.terminate()
        process.wait()
    return Result(
        code=process.returncode, stdout=(out or b"").decode(errors="replace"), stderr=err.decode(errors="replace")
    )


def must(what: str, *arguments: str) -> str:
    """What restic prints. Raises CannotGoOnError: `what` could not be done, and why."""
    done = call(*arguments)
    if not done.ok:
        raise CannotGoOnError(f"{what}: {last_words(done)}")
    return done.stdout


def open_repository(*, make: bool = False) -> bool:
    """See that the repository is there; `make`: an empty place becomes one, which is told. Raises CannotGoOnError."""
    done = call("cat", "config", "--no-lock", limit=_FIRST_ANSWER)  # a lock is waited for longer
    is_there = done.code != _NO_REPOSITORY
    if make and not is_there:
        must("the repository could not be made", "init", "--quiet")
    elif not done.ok:
        hint = "" if is_there else "; `slurmstack backup now` makes one"
        raise CannotGoOnError(f"the repository cannot be opened: {last_words(done)}{hint}")
    call("unlock", "--quiet")  # only what a killed one has left
    return not is_there


def _messages(done: Result) -> list[dict[str, Any]]:
    """What restic has said on standard error: JSON as it is, other lines as messages."""
    found = []
    for line in filter(str.strip, lines_in(done.stderr)):
        try:
            item = json.loads(line)
        except ValueError:
            item = None
        found.append(item if isinstance(item, dict) else {"message": line.strip()})
    return found


def last_words(done: Result) -> str:
    """The end of what restic has said."""
    words = [str(item.get("message") or (item.get("error") or {}).get("message", "")) for item in _messages(done)[-3:]]
    return " | ".join(" ".join(each.split()) for each in words if each) or f"restic ended with {done.code}"


def failed_files(done: Result) -> list[str]:
    """Files that restic has said something of, in words without control characters; not of those that were gone."""
    errors = [item for item in _messages(done) if item.get("message_type") == "error"]
    found = [(item.get("item"), str((item.get("error") or {}).get("message", ""))) for item in errors]
    return [f"{path!a}: {why!a}" for path, why in found if "no such file or directory" not in why]


# --- The jail ---------------------------------------------------------------------------------------------------------


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


def in_jail(below: str = str(JAIL)) -> list[str]:
    """Arguments for restic: what it leaves alone in the jail; `EXCLUDE` has paths of users, as JSON."""
    paths = [*(f"/{path}/*" for path in NEVER), *json.loads(os.environ.get("EXCLUDE") or "[]")]
    everywhere = [f"--exclude={below}{root}{path}" for root in ("", f"/{ROOTS}/*/root") for path in paths]
    return [*everywhere, f"--exclude={below}/{ROOTS}/{HOMES_MARK}"]
