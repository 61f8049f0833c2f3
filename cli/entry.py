"""Where the `slurmstack` command begins: what makes loading quick, and Ctrl-C quiet while it lasts."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from typing import NoReturn

from cli.errors import INTERRUPTED


def main() -> NoReturn:
    """Load the command, run it, and end the process."""
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


def _end(status: int) -> NoReturn:
    """End at once, with all that was written on its way."""
    atexit._run_exitfuncs()  # noqa: SLF001  there is no public name for it
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:  # a reader that has gone, as in `slurmstack status | head -1`, or a disk that is full
        status = status or 1
    os._exit(status)


if __name__ == "__main__":
    main()
