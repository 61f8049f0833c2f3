"""munge: a credential that munged makes here is one that it understands."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from images.common.command import NO_PROGRAM, TIMED_OUT, Runner
from images.common.command import Result as Ended
from images.common.health.contract import Check, Node, Result, Thresholds
from images.health.verdict import fail, not_checked, ok

NAME: Final = "munge"

_SECONDS: Final = 2.0
"""For each of the two commands. They take 3 ms."""

SAYS_MUNGED: Final = frozenset({6, 7, *range(8, 15), 18})
"""Exit codes that are munged's word (`munge_err_t` in munge.h): no socket, no answer, a bad or invalid credential, not
allowed. Not 15 to 17, expired, from the future and replayed: here these mean that the clock jumped or that two of these
checks met. Not 1 to 5 either, which are the programs' own."""


def run(node: Node, runner: Runner, _thresholds: Thresholds) -> Result:
    """Make one and read it.

    It is root's credential, so it lies where only root looks, and nobody else may decode it.
    """
    directory = node.state / NAME
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)
    credential = directory / str(os.getpid())
    try:
        return _round_trip(runner, credential)
    finally:
        credential.unlink(missing_ok=True)


def _round_trip(runner: Runner, credential: Path) -> Result:
    make = ["munge", "--no-input", f"--restrict-uid={os.geteuid()}", f"--output={credential}"]
    for argv in (make, ["unmunge", "--keys=STATUS", "--numeric", f"--input={credential}"]):
        ended = runner(argv, timeout=_SECONDS)
        if not ended.ok:
            return _failed(argv[0], ended)
    if not re.search(r"^STATUS:\s+0\s*$", ended.stdout, re.MULTILINE):
        return not_checked(f"unmunge said something else than a status: {ended.message[:100]}")
    return ok()


def _failed(program: str, ended: Ended) -> Result:
    if ended.code == NO_PROGRAM:
        return not_checked(f"there is no {program} here")
    if ended.code == TIMED_OUT:
        return not_checked(f"{program} did not end in {_SECONDS:g} s")
    said = re.search(rf"^{program}: Error: (.+)$", ended.stderr, re.MULTILINE)
    if said is None or ended.code not in SAYS_MUNGED:
        return not_checked(f"{program} ended with {ended.code}: {ended.message[:100]}")
    return fail("node", f"munged of this pod: {said[1]}")


CHECK: Final = Check(
    name=NAME,
    summary="munged makes credentials and understands them",
    run=run,
)
