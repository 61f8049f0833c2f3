"""health-inside DIRECTORY PROGRAM [ARGUMENT ...]: runs a site's own check in the jail, without capabilities.

Users with `sudo: true` are root in the jail, and may change what is run there: it must not have what leads out.
"""

from __future__ import annotations

import os
import sys

from images.common.boundary import keep_only
from images.common.command import NO_PROGRAM, NOT_STARTED
from images.health.local import prepare_environment


def main() -> int:
    """Entry point."""
    directory, *argv = sys.argv[1:]
    prepare_environment()
    try:
        if directory != "/":
            os.chroot(directory)
        os.chdir("/")
        keep_only()
        os.execv(argv[0], argv)  # noqa: S606  (a site's own program, by its whole path)
    except OSError as error:
        sys.stderr.write(f"{argv[0]}: {error.strerror}\n")
        # As a shell ends: the check is not checked then.
        return NO_PROGRAM if isinstance(error, FileNotFoundError) else NOT_STARTED
