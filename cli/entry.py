"""Where the `slurmstack` command begins: nothing but what makes Ctrl-C quiet while the rest is still being loaded."""

from __future__ import annotations

import sys

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""


def main() -> None:
    """Load the command and run it."""
    try:
        from cli.main import main as run  # noqa: PLC0415  loading takes a second, and Ctrl-C may come in it
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    run()


if __name__ == "__main__":
    main()
