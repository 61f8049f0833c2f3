"""Runs of `make bench` as they are kept."""

from __future__ import annotations

import socket

from tests.bench import record as records


def test_a_run_that_begins_says_what_times_depend_on_and_not_whose_machine_it_is() -> None:
    begun = records.begin(["array"], complete=False)
    assert {"cpu", "cores", "memory_gib", "kernel"} <= begun.machine.keys()
    assert len(begun.load_at_start) == 3
    assert begun.commit
    assert begun.commit != "unknown"
    assert socket.gethostname() not in begun.dump()
