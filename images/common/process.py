"""Being PID 1 of a container: signals, and turning into the daemon."""

from __future__ import annotations

import os
import pwd
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import NoReturn


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


def become(argv: Sequence[str], log: Callable[[str], None], *, env: Mapping[str, str] | None = None) -> NoReturn:
    """Replace this process by the daemon, so that it is PID 1 and gets the signals itself.

    Python ignores SIGPIPE and SIGXFSZ, and what is ignored stays so in all that the daemon starts: a job that writes
    beyond its limit would not end, and `yes | head` in it neither.
    """
    log("starting " + " ".join(argv))
    sys.stdout.flush()
    sys.stderr.flush()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execvpe(argv[0], list(argv), dict(os.environ if env is None else env))  # noqa: S606


def required_env(name: str) -> str:
    """An environment variable that the pod has to set."""
    value = os.environ.get(name, "")
    if not value:
        sys.exit(f"{Program.name()}: the environment variable {name} is not set")
    return value


class Program:
    """How this process is called in messages."""

    @staticmethod
    def name() -> str:
        """The file name that was started."""
        return os.path.basename(sys.argv[0]) or "slurmstack"  # noqa: PTH119
