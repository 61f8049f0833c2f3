#!/usr/bin/python3 -I
"""The batch script of a test: runs on the node, in the jail, as whatever is in it, and needs nothing but Python there.

It runs the command that its first argument names, and tells how that went in the Comment of its own job, in which Slurm
allows 1,024 characters: `{"code": 0, "platform": "8x NVIDIA H100 80GB HBM3", "text": "..."}`. Whoever has submitted the
job reads it there. It is ended by SIGTERM at any time, leaving nothing behind: users do not wait for a test.
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
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

LONGEST = 1000
"""Characters of the comment: Slurm refuses more than 1,023."""
LONGEST_TEXT = 800
NO_PROGRAM = 127
TIMED_OUT = 124
PREFIX = "slurmstack-health-"
_DYING_SECONDS = 5


def kept(output: str, pattern: str) -> str:
    """What matters of the output: of each line that matches the groups of the pattern, or the match."""
    lines = []
    for line in output.splitlines():
        match = re.search(pattern, " ".join(line.split()))
        if match:
            lines.append(" ".join(match.groups()) if match.groups() else match[0])
    return "\n".join(lines)


def told(code: int, output: str, pattern: str, platform: str) -> str:
    """The comment. Of an output in which nothing matters it has the end, which tells why."""
    text = "\n".join(plain(line) for line in kept(output, pattern).splitlines())
    said: dict[str, Any] = {"code": code, "platform": plain(platform)[:60], "text": text[:LONGEST_TEXT]}
    if len(text) > LONGEST_TEXT:
        said["cut"] = True
    if not text:
        said["end"] = plain(" ".join(output[-2000:].split()))[-200:]
    comment = json.dumps(said)
    if len(comment) > LONGEST:  # of characters that JSON writes as two
        comment = json.dumps({**said, "text": text[: LONGEST_TEXT // 2], "cut": True})
    return comment


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


def run(argv: list[str], seconds: float, environment: dict[str, str]) -> tuple[int, str]:
    """Exit code and output of the command, which is ended after its time, or when this process is."""
    process: subprocess.Popen[str] | None = None
    try:
        try:
            with unended():
                process = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                    env={**os.environ, **environment},
                    start_new_session=True,
                )
        except OSError as error:
            return NO_PROGRAM, f"{argv[0]}: {error.strerror}"
        return watched(process, seconds)
    finally:
        if process is not None:
            kill(process)


@contextlib.contextmanager
def unended() -> Iterator[None]:
    """SIGTERM waits: a command that has begun would go on where nobody knows of it yet."""
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
    for number in came:
        os.kill(os.getpid(), number)


def watched(process: subprocess.Popen[str], seconds: float) -> tuple[int, str]:
    """How a command ends that may take so many seconds."""
    late = threading.Event()

    def end() -> None:
        late.set()
        kill(process)

    timer = threading.Timer(seconds, end)
    timer.start()
    try:
        output, _ = process.communicate()
    finally:
        timer.cancel()
    if late.is_set():
        return TIMED_OUT, f"no end within {seconds:g} s"
    return process.returncode, output


def kill(process: subprocess.Popen[str]) -> None:
    """End a command and what it has started, if it has not ended. srun needs a moment to end its tasks."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        with contextlib.suppress(OSError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_DYING_SECONDS)


@contextlib.contextmanager
def scratch(argv: list[str], directory: str) -> Iterator[list[str]]:
    """The command with a directory of its own, if it wants one."""
    if not any("{scratch}" in argument for argument in argv):
        yield argv
        return
    own = f"{PREFIX}{os.uname().nodename}-"
    for old in Path(directory).glob(f"{own}*"):  # of a test that was killed: one runs at a time
        if old.lstat().st_uid == os.getuid():
            shutil.rmtree(old, ignore_errors=True)
    path = tempfile.mkdtemp(prefix=own, dir=directory)
    try:
        yield [argument.replace("{scratch}", path) for argument in argv]
    finally:
        shutil.rmtree(path, ignore_errors=True)


def main() -> int:
    """Entry point."""

    def end(_number: int, _frame: object) -> NoReturn:
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    wanted = json.loads(sys.argv[1])
    argv = [argument.replace("{cpus}", str(len(os.sched_getaffinity(0)))) for argument in wanted["argv"]]
    try:
        with scratch(argv, wanted["directory"]) as command:
            code, output = run(command, wanted["seconds"], wanted["environment"])
    except OSError as error:
        code, output = NO_PROGRAM, f"{wanted['directory']}: {error.strerror}"
    comment = told(code, output, wanted["keep"], gpus())
    job = os.environ.get("SLURM_JOB_ID", "")
    update = ["scontrol", "update", f"jobid={job}", f"comment={comment}"]
    return subprocess.run(update, timeout=30, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
