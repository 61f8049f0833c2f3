"""What running the program without an engine leaves behind."""

from __future__ import annotations

import gc
from pathlib import Path

from cli.program.recording import record
from tests import stacks

DESCRIPTORS = Path("/proc/self/fd")


def test_a_recording_leaves_nothing_open() -> None:
    record(stacks.dev(), stack="dev")  # what is loaded once may stay open
    gc.collect()  # what other tests have left is closed now, or not before the count
    before = len(list(DESCRIPTORS.iterdir()))
    record(stacks.dev(), stack="dev")
    assert len(list(DESCRIPTORS.iterdir())) <= before
