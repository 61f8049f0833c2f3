"""Whatever is broken that a check asks or reads: it does not know then, raises nothing and never calls it a fault.

A node that is drained because `nvidia-smi` says something new is a node that users miss for nothing.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from images.common.command import NO_PROGRAM, TIMED_OUT, Result
from images.common.health.contract import Status
from images.health.registry import find_checks
from tests.unit.images.health.worker import Worker, lead_names_here

CHECKS = find_checks()
ASKING = {"gpu-free", "gpu-presence", "gpu-xid", "munge"}
"""Checks that ask a program. The others ask the kernel or the C library."""


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Worker:
    lead_names_here(monkeypatch)
    return Worker(tmp_path)


def test_where_nothing_is_broken_each_check_knows(worker: Worker) -> None:
    for check in CHECKS.values():
        shutil.rmtree(worker.state, ignore_errors=True)
        status, runner = worker.look(check)
        assert status in {Status.OK, Status.WARN}, check.name
        assert bool(runner.commands) == (check.name in ASKING), check.name


NO_ANSWER = [Result(code=code, stderr="no answer") for code in (NO_PROGRAM, TIMED_OUT, -9)]
SAID = ["", "<html><body>502 Bad Gateway</body></html>", "-1, -1, -1\n", "0, many, many\n"]


@pytest.mark.parametrize("name", sorted(ASKING))
def test_a_program_that_gives_no_answer_or_babbles_is_not_believed(worker: Worker, name: str) -> None:
    for answer in NO_ANSWER:
        assert worker.look(CHECKS[name], answer)[0] is Status.NOT_CHECKED, answer
    for said in SAID:
        for code in (0, 1):
            shutil.rmtree(worker.state, ignore_errors=True)
            status, _ = worker.look(CHECKS[name], Result(code=code, stdout=said, stderr=said))
            known = {Status.FAIL, Status.OK} if name != "gpu-xid" else {Status.FAIL}
            assert status not in known, (code, said[:20])


def test_files_that_are_absent_or_garbage_are_no_fault_of_the_node(worker: Worker) -> None:
    for check in CHECKS.values():
        worker.look(check)
    well = [path for path in worker.root.parent.rglob("*") if path.is_file()]
    assert any(path.is_relative_to(worker.state) for path in well), "what checks remember"
    for garbage in (b"", b"\xff\xfe\x00\x7f", b"[]", None):
        for path in well:
            path.unlink(missing_ok=True) if garbage is None else path.write_bytes(garbage)
        for check in CHECKS.values():
            assert worker.look(check)[0] is not Status.FAIL, (check.name, garbage)
