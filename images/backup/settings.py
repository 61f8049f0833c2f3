"""What the containers of a backup's or a restore's pod are told, and what they tell each other."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any, Final

from images.backup.restic import AUTHORITY, CREDENTIALS, Repository
from images.common.boundary import give_up_set_up
from images.common.jail_roots import HOMES_MARK, ROOTS
from images.common.jail_view import Bind, homes_directory, show
from images.common.mountinfo import expect_volume, follow_no_links
from images.common.process import CannotGoOnError, required_env

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


def told() -> dict[str, Any]:
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
