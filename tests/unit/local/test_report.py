from __future__ import annotations

import errno
import io

from local import report


def test_a_finished_step_says_what_it_was_and_what_it_took() -> None:
    stream = io.StringIO()
    with report.PlainReport(stream).step("Build it") as step:
        step.note("3 packages")
    assert stream.getvalue() == "Build it, 3 packages (0.0 s)\n"


def test_work_goes_on_where_nobody_can_be_told_of_it() -> None:
    class Full(io.StringIO):
        def flush(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    with report.PlainReport(Full()).step("Build it"):
        report.PlainReport(Full()).info("on the way")
