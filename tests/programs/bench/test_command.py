"""`make bench` with the real git and make."""

from __future__ import annotations

import socket
import subprocess

from tests.bench import record as records
from tests.stacks import ROOT


def test_a_run_that_begins_says_what_times_depend_on_and_not_whose_machine_it_is() -> None:
    begun = records.begin(["array"], complete=False)
    assert {"cpu", "cores", "memory_gib", "kernel"} <= begun.machine.keys()
    assert len(begun.load_at_start) == 3
    assert begun.commit
    assert begun.commit != "unknown"
    assert socket.gethostname() not in begun.dump()


def test_make_passes_parts_and_the_file_to_compare_with_on() -> None:
    made = ["make", "--dry-run", "--always-make", "bench", "PARTS=array start", "COMPARE=old.json", "BENCH=--runs 2"]
    done = subprocess.run(made, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "-m tests.bench array start --compare old.json --runs 2" in " ".join(done.stdout.split())
