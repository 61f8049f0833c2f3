"""Where the `slurmstack` command begins: what makes loading quick, and Ctrl-C quiet while it lasts."""

from __future__ import annotations

import atexit
import contextlib
import errno
import gc
import os
import sys
from typing import NoReturn

from cli.errors import INTERRUPTED

_STDERR = 2

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


def main() -> NoReturn:
    """Load the command, run it, and end the process."""
    # What the caller has closed (`>&-`) goes nowhere: else the next file that is opened would become the output.
    while os.open(os.devnull, os.O_RDWR) <= _STDERR:
        pass
    sys.stdout, sys.stderr = sys.stdout or open(1, "w"), sys.stderr or open(2, "w")  # noqa: SIM115
    sys.stdin = sys.stdin or open(0)  # noqa: SIM115
    # A terminal may not have all letters of a job's name or a reason: one of them must not end a command.
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    # The generated classes of the Kubernetes API are half a million objects that all live until the end: to look for
    # garbage among them while they load, and to free them one by one at the end, takes a third of a short command.
    # The collector comes on only for commands that wait for long, and gather garbage meanwhile.
    gc.set_threshold(500_000, 10, 10)
    # pydantic would look through all installed packages for plugins of its own, of which nothing here has any.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        from cli.app import main as run  # noqa: PLC0415  loading takes a while, and Ctrl-C may come in it

        run()
    except KeyboardInterrupt:
        _end(INTERRUPTED)
    except SystemExit as end:
        _end(end.code if isinstance(end.code, int) else int(end.code is not None))
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        _end(_print_error(error))


def _print_error(error: OSError) -> int:
    """Say why something could not be written. Returns the exit status."""
    what = str(error.filename or "the output")
    with contextlib.suppress(OSError):
        print(f"error: {what} cannot be written: {error.strerror}", file=sys.stderr)
    return 1


def _end(status: int) -> NoReturn:
    """End at once, with all that was written on its way."""
    atexit._run_exitfuncs()  # noqa: SLF001  there is no public name for it
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError as error:  # a reader that has gone, as in `slurmstack status | head -1`, or a disk that is full
        if error.errno in _NO_ROOM and not status:
            _print_error(error)
        status = status or 1
    os._exit(status)


if __name__ == "__main__":
    main()
