from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from local import processes

if TYPE_CHECKING:
    pass


def _record(pid: int, **changes: object) -> processes.Record:
    values = {
        "pid": pid,
        "start_ticks": processes.start_ticks(pid),
        "boot_id": processes.boot_id(),
        "started_at": 0.0,
        **changes,
    }
    return processes.Record(**values)  # type: ignore[arg-type]


def test_a_process_that_ended_is_dead_even_while_nobody_waited_for_it() -> None:
    process = subprocess.Popen(["sleep", "60"])
    record = _record(process.pid)
    assert record.is_alive()
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not record.is_alive()
    process.poll()
