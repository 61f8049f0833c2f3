"""Files: written so that nobody sees half of one, and read where users may have written them."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from images.common.wait import wait_for

Owner = tuple[int, int]
"""User and group, by their numbers."""

JWT_SECRET: Final = Path("/secrets/jwt/jwt_hs256.key")
JWT_KEY: Final = Path("/run/slurmstack/keys/jwt_hs256.key")
"""The key that signs tokens: what AuthAltParameters in slurm.conf and slurmdbd.conf name. Only slurmctld and slurmdbd
have the file: all other daemons and commands carry tokens, and never look into them."""

HOST_KEY: Final = Path("/etc/ssh/ssh_host_ed25519_key")
"""By which users know the login nodes."""

_OTHERS_WRITE: Final = 0o022


def read_untrusted(path: Path, most: int) -> bytes | None:
    """The content of a regular file; None where there is nothing of that name.

    No link is followed, and no FIFO holds this up. Raises OSError for all that is no file, or has more than `most`
    bytes. The way to it is the caller's business (jail_view.open_inside).
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no file", str(path))
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes", str(path))
    return content


def lines_in(text: str) -> list[str]:
    """Lines of what the kernel tells. It ends them by a line feed, and escapes that alone in names that users choose.

    Python takes eleven more characters for ends of lines (`splitlines`, and a carriage return in any text that it
    reads): by one of them the name of a process would write lines of its own.
    """
    return text.removesuffix("\n").split("\n") if text else []


def text_of(file: Path, errors: str = "replace") -> str:
    """A file as it is. Raises OSError."""
    return file.read_bytes().decode(errors=errors)


def write_atomically(
    path: Path, content: str | bytes, *, mode: int = 0o644, owner: Owner | None = None, sync: bool = True
) -> None:
    """Write `path` so that a reader sees the old content or the new one, and a crash leaves one of the two.

    By default the file belongs to this process. `sync=False`: where a crash of the machine takes it along anyway.
    """
    import tempfile  # noqa: PLC0415  what runs at each login needs none of it

    data = content.encode() if isinstance(content, str) else content
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            if owner is not None:
                os.fchown(file.fileno(), *owner)
            if sync:
                os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def own_tree(root: Path, owner: Owner, but: Callable[[Path], bool] = lambda _: False) -> None:
    """Give a directory and all below it to a user, but some: a fresh volume belongs to root, and what root restored."""
    for path in (root, *root.rglob("*")):
        status = path.lstat()
        if (status.st_uid, status.st_gid) != owner and not but(path):
            os.lchown(path, *owner)


def swap_symlink(link: Path, target: str) -> None:
    """Point `link` at `target` in one step."""
    temporary = link.with_name(f".{link.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.replace(link)


def read_document(path: Path, *, most: int = 65536) -> dict[str, Any] | None:
    """A JSON document that strangers may have written; None if it is not there, empty where it is none.

    `most`: bytes; what has more is none.
    """
    try:
        content = read_untrusted(path, most)
        if content is None:
            return None
        found = json.loads(content)
    except (OSError, ValueError, RecursionError):  # a number of thousands of digits is a ValueError, too
        return {}
    return found if isinstance(found, dict) else {}


def install_secret(
    what: str,
    secret: Path,
    target: Path,
    log: Callable[[str], None],
    *,
    owner: Owner | None = None,
    mode: int = 0o400,
) -> None:
    """Copy a file, when it is there, to one that only its owner can read.

    It is copied at each start: a rotated key is taken by restarting the daemon.
    """
    wait_for(f"{what} {secret}", secret.is_file, log)
    directory = target.parent
    if not directory.is_dir():
        directory.mkdir(parents=True)
        directory.chmod(0o755)
    elif (mode_there := stat.S_IMODE(directory.stat().st_mode)) & _OTHERS_WRITE:
        # A volume of the pod: Kubernetes makes it for everybody to write, and who writes here could put another file in
        # the place of this one.
        directory.chmod(mode_there & ~_OTHERS_WRITE)
    write_atomically(target, secret.read_bytes(), mode=mode, owner=owner)


def install_jwt_key(owner: Owner, log: Callable[[str], None]) -> None:
    """Copy the key of the tokens for slurmctld or slurmdbd."""
    install_secret("the key of the tokens", JWT_SECRET, JWT_KEY, log, owner=owner)
