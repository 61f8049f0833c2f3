"""munge: a credential that munged makes here is one that it understands."""

from __future__ import annotations

import os
import re
from typing import Final

from images.common.command import TIMED_OUT, Runner
from images.common.health.contract import Check, Node, Result, fail, not_checked, ok

NAME: Final = "munge"

_SECONDS: Final = 4.0
"""For both commands. They take 3 ms each."""

SAYS_MUNGED: Final = frozenset({6, 7, *range(8, 15), 18})
"""Exit codes that are munged's word (`munge_err_t` in munge.h): no socket, no answer, a bad or invalid credential, not
allowed. Not 15 to 17, expired, from the future and replayed: here these mean that the clock jumped or that two of these
checks met. Not 1 to 5 either, which are the programs' own."""


def run(_node: Node, runner: Runner) -> Result:
    """Make one and read it. It is root's credential, so nobody else may decode it."""
    make = f"munge --no-input --restrict-uid={os.geteuid()}"
    both = f'credential=$({make}) && echo "$credential" | unmunge --keys=STATUS --numeric'
    ended = runner(["sh", "-c", both], timeout=_SECONDS)
    if ended.code == TIMED_OUT:
        return not_checked(f"munged did not answer in {_SECONDS:g} s")
    error = re.search(r"^(?:un)?munge: Error: (.+)$", ended.stderr, re.MULTILINE)
    if error is not None and ended.code in SAYS_MUNGED:
        return fail("node", f"munged of this pod: {error[1]}")
    if not ended.ok or not re.search(r"^STATUS:\s+0\s*$", ended.stdout, re.MULTILINE):
        return not_checked(f"munge or unmunge ended with {ended.code}: {ended.message[:100]}")
    return ok()


CHECK: Final = Check(name=NAME, run=run)
