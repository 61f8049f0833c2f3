#!/usr/bin/python3 -I
"""The batch script of a test: runs on the node, in the jail, as whatever is in it, and needs nothing but Python there.

It runs the command that its first argument names, and tells how that went in the Comment of its own job, in which Slurm
allows 1,023 characters: `{"code": 0, "platform": "8x NVIDIA H100 80GB HBM3", "figures": {"busbw": ["474.8"]}, ...}`.
Whoever has submitted the job reads it there. It is ended by SIGTERM at any time, leaving nothing behind: users do not
wait for a test.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NO_PROGRAM = 127
PREFIX = "slurmstack-health-"


def comment_of(code: int, output: str, wanted: dict[str, Any], platform: str) -> str:
    """The comment: figures and faults that were looked for. Without a figure it has the end, which tells why."""
    lines = [" ".join(line.split()) for line in output.splitlines()]
    figures = {name: found(pattern, lines, 20) for name, pattern in wanted["figures"].items()}
    faults = found(wanted["faults"], lines, 80) if wanted["faults"] else []
    comment: dict[str, Any] = {"code": code, "platform": plain(platform)[:60], "figures": figures, "faults": faults}
    if not all(figures.values()):
        comment["end"] = plain(" ".join(output[-2000:].split()))[-200:]
    return json.dumps(comment)


def found(pattern: str, lines: list[str], longest: int) -> list[str]:
    """The last group of the pattern, or all of the match, in the first lines that match: two are one too many."""
    matches = [match for line in lines if (match := re.search(pattern, line))]
    return [plain(match[match.lastindex or 0])[:longest] for match in matches[:2]]


def plain(text: str) -> str:
    """Printable ASCII, of which JSON writes no character as more than two."""
    return "".join(character if " " <= character <= "~" else "?" for character in text)


def platform_of(listing: str) -> str:
    """`8x NVIDIA H200`, from one line with the name of each GPU; empty if there is none, or they differ."""
    names = [" ".join(line.split()) for line in listing.splitlines() if line.strip()]
    return f"{len(names)}x {names[0]}" if names and len(set(names)) == 1 else ""


def gpus() -> str:
    """The GPUs of this node."""
    argv = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return platform_of(done.stdout) if done.returncode == 0 else ""


@contextlib.contextmanager
def scratch(argv: list[str], directory: str) -> Iterator[list[str]]:
    """The command with a directory of its own, if it wants one."""
    if not any("{scratch}" in argument for argument in argv):
        yield argv
        return
    own = f"{PREFIX}{os.uname().nodename}-"
    for old in Path(directory).glob(f"{own}*"):  # of a test whose node went down: one runs at a time
        shutil.rmtree(old, ignore_errors=True)
    path = tempfile.mkdtemp(prefix=own, dir=directory)
    try:
        yield [argument.replace("{scratch}", path) for argument in argv]
    finally:
        shutil.rmtree(path, ignore_errors=True)


def main() -> int:
    """Entry point. What does not end is ended by the time limit of the job."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    wanted = json.loads(sys.argv[1])
    argv = [argument.replace("{cpus}", str(len(os.sched_getaffinity(0)))) for argument in wanted["argv"]]
    try:
        with scratch(argv, wanted["directory"]) as command:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                check=False,
            )
        code, output = done.returncode, done.stdout
    except OSError as error:
        code, output = NO_PROGRAM, f"{error.filename}: {error.strerror}"
    comment = comment_of(code, output, wanted, gpus())
    job = os.environ.get("SLURM_JOB_ID", "")
    update = ["scontrol", "update", f"jobid={job}", f"comment={comment}"]
    return subprocess.run(update, timeout=30, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
