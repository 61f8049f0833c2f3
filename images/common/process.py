"""Being a program of a container: signals, reasons to end, and turning into the daemon, with libraries of ours.

The C files in images/common/native tell why Slurm's daemons are started with those.
"""

from __future__ import annotations

import os
import pwd
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final, NoReturn, TextIO

from images.common.log import Log

LOST_PEERS: Final = "/usr/lib/slurmstack/lost_peers.so"
"""Connections end in seconds when the machine at the other end is gone."""

NO_TRIGGERS: Final = "/usr/lib/slurmstack/no_triggers.so"
"""slurmctld starts no program of a trigger."""

GUARDED: Final = "/usr/lib/slurmstack/guarded.so"
"""What users ask of slurmd and slurmstepd does no harm to others."""


def with_preloaded(*libraries: str) -> dict[str, str]:
    """This process's environment, with the libraries for the daemon that it turns into."""
    return {**os.environ, "LD_PRELOAD": ":".join(libraries)}


class CannotGoOnError(Exception):
    """What keeps a program from its work; the message says it, and what helps. A restart may find it mended."""

    status = 1


class RefusedError(CannotGoOnError):
    """What will keep it from its work until a person has changed something."""

    status = 2


@contextmanager
def program(name: str, stream: TextIO | None = None) -> Iterator[Log]:
    """The life of every program: it ends at once on SIGTERM, and its log says why it cannot do its work."""
    end_on_sigterm()
    log = Log(name, stream)
    try:
        yield log
    except CannotGoOnError as error:
        log.failure(str(error))
        sys.exit(error.status)


def end_with_threads(log: Log) -> None:
    """End the program where one of its threads ends by an error: nobody would do that thread's work any more.

    Kubernetes starts the container again, and shows that it did.
    """

    def end(ended: threading.ExceptHookArgs) -> None:
        name = ended.thread.name if ended.thread else "a thread"
        trace = "".join(traceback.format_exception(ended.exc_type, ended.exc_value, ended.exc_traceback))
        log.failure(f"{name} has ended, and this program with it:\n{trace}")
        os._exit(CannotGoOnError.status)

    threading.excepthook = end


def end_on_sigterm() -> None:
    """End at once on SIGTERM and SIGINT.

    PID 1 would not even notice them otherwise: for it, the kernel drops signals that have no handler.
    """

    def end(number: int, _frame: FrameType | None) -> NoReturn:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)


def drop_privileges(user: pwd.struct_passwd) -> None:
    """Go on as another user, for good."""
    os.setgroups([])
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)


def become(
    argv: Sequence[str],
    log: Callable[[str], None],
    *,
    user: pwd.struct_passwd | None = None,
    env: Mapping[str, str] | None = None,
) -> NoReturn:
    """Replace this process by the daemon, so that it is PID 1 and gets the signals itself.

    Python ignores SIGPIPE and SIGXFSZ, and what is ignored stays so in all that the daemon starts: a job that writes
    beyond its limit would not end, and `yes | head` in it neither.
    """
    if user is not None:
        drop_privileges(user)
    log("starting " + " ".join(argv))
    sys.stdout.flush()
    sys.stderr.flush()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execvpe(argv[0], list(argv), dict(os.environ if env is None else env))  # noqa: S606


def required_env(name: str) -> str:
    """An environment variable that the pod has to set. Raises CannotGoOnError."""
    value = os.environ.get(name, "")
    if not value:
        raise CannotGoOnError(f"the environment variable {name} is not set")
    return value
