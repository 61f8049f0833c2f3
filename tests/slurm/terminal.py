"""A person at a terminal: commands are typed at the prompt of a program in a pod."""

from __future__ import annotations

import os
import re
import select
import subprocess
import time
from collections.abc import Mapping, Sequence

from tests.slurm.pod import HANG_SECONDS, Pod

PROMPT = re.compile(r"[$#] (?:\x1b\[[0-9;?]*[a-zA-Z])*$")


def type_at(pod: Pod, argv: Sequence[str], *lines: str, env: Mapping[str, str] | None = None) -> str:
    """Start a program on a terminal, type each line once there is a prompt, and return all that was shown."""
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        pod.command(argv, {"TERM": "dumb", **(env or {})}),
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        preexec_fn=lambda: os.login_tty(os.dup(theirs)),  # noqa: PLW1509 - the terminal has to be the program's own
    )  # fmt: skip
    os.close(theirs)
    shown, waiting, deadline = "", [*lines], time.monotonic() + HANG_SECONDS
    try:
        while time.monotonic() < deadline:
            ready, _, _ = select.select([ours], [], [], 0.2)
            if not ready:
                if process.poll() is not None:
                    return shown
                continue
            try:
                read = os.read(ours, 4096)
            except OSError:  # the other side is closed
                return shown
            shown += read.decode(errors="replace")
            if waiting and PROMPT.search(shown):
                os.write(ours, f"{waiting.pop(0)}\n".encode())
                shown += "\n"
        raise AssertionError(f"not within {HANG_SECONDS:g} s: {argv} shows {shown!r}")
    finally:
        process.kill()
        process.wait()
        os.close(ours)
