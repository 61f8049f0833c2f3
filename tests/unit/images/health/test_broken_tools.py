"""Whatever is broken that a check asks or reads: it does not know then, raises nothing and never calls it a fault.

A node that is drained because `nvidia-smi` says something new is a node that users miss for nothing.
"""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from images.common.command import NO_PROGRAM, TIMED_OUT, Result
from images.health.checks import disks
from images.health.contract import Check, Node, Status, Thresholds
from images.health.registry import find_checks
from images.health.tools import CANNOT_RUN
from tests.fakes.commands import Answer, FakeRunner
from tests.unit.images.health.gpus import machine
from tests.unit.images.health.gpus import node as gpu_node
from tests.unit.images.health.places import DATA, make_node, write
from tests.unit.images.health.processes import add_process
from tests.unit.images.health.tables import table

CHECKS = find_checks().checks
ASKING = {"gpu-free", "gpu-links", "gpu-memory", "gpu-presence", "gpu-thermal", "gpu-xid", "munge", "processes"}
"""Checks that ask a program. The others ask the kernel or the C library."""
LIMITS = Thresholds(
    {
        "processes": {"step_seconds": 0},  # so that it has something to ask for
        "disks": dict.fromkeys(("warn_percent", "fail_percent", "warn_inodes_percent", "fail_inodes_percent"), 101),
    }
)
EACH = pytest.mark.parametrize("check", CHECKS.values(), ids=list(CHECKS))
EACH_ASKING = pytest.mark.parametrize("check", [CHECKS[name] for name in sorted(ASKING)], ids=sorted(ASKING))


class Worker:
    """A node where all is well, with all that any check looks at."""

    def __init__(self, path: Path) -> None:
        given = make_node(path, gpus=8, infiniband=True)
        self.root, self.state = given.root, given.state
        self.node: Node = replace(gpu_node(given.root), name="w-0", infiniband=True, state=given.state, jail=given.jail)
        self.node = replace(self.node, local_disks=(given.root,))
        add_process(self.root / "proc", 7, comm="slurmd", uid=0)
        add_process(self.root / "proc", 90, comm="slurmstepd", title="slurmstepd: [17.0]", uid=0)
        write(self.root / "proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05\n")
        write(self.root / "sys/fs/cgroup/memory.stat", (DATA / "cgroup2-memory.stat").read_text())
        write(self.root / "sys/fs/cgroup/memory.max", f"{2**36}\n")
        write(self.root / "sys/fs/cgroup/hugetlb.2MB.current", "0\n")
        write(self.root / "run/slurm/conf/slurm.conf", "SlurmctldHost=controller-0\n")
        port = {
            "link_layer": "InfiniBand",
            "state": "4: ACTIVE",
            "phys_state": "5: LinkUp",
            "rate": "400 Gb/sec (4X NDR)",
        }
        port |= {"counters/symbol_error": "0", "counters/link_downed": "0", "../../board_id": "MT_0000000838"}
        for name, text in port.items():
            (self.root / "sys/class/infiniband/mlx5_0/ports/1").mkdir(parents=True, exist_ok=True)
            write(self.root / "sys/class/infiniband/mlx5_0/ports/1" / name, f"{text}\n")
        for directory in disks.WRITTEN:
            (self.root / directory).mkdir(parents=True)

    def look(self, check: Check, answer: Answer | None = None) -> tuple[Status, FakeRunner]:
        """Run it as the child of the runner does, and let what it raises out; `answer`: of all programs."""
        well = machine()
        well.answers |= {
            "nvidia-smi --query-gpu=pci.bus_id,index,memory.used": Result(
                code=0, stdout="".join(f"00000000:3{number}:00.0, {number}, 4\n" for number in range(8))
            ),
            "unmunge": Result(code=0, stdout="STATUS:          0\n\n"),
            "squeue": Result(code=0, stdout="17\n"),
        }
        runner = well if answer is None else FakeRunner({"": answer})
        return check.run(self.node, runner, LIMITS).status, runner


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Worker:
    """The node, and a name server that leads all names here."""
    here = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_a, **_k: here)
    return Worker(tmp_path)


@EACH
def test_where_nothing_is_broken_each_check_knows(worker: Worker, check: Check) -> None:
    status, runner = worker.look(check)
    assert status in {Status.OK, Status.WARN}, "nobody may keep the clock of the machine that runs this"
    assert bool(runner.commands) == (check.name in ASKING)


# ---------------------------------------------------------------- programs

BABBLE = {
    "nothing": "",
    "blank lines": "\n\n \n",
    "something binary": "\x00\ufffd\x01\x7f",
    "a broken document": '{"gpus": [{"index": 0,',
    "a page of the web": "<html><body>502 Bad Gateway</body></html>",
    "help": "Usage: nvidia-smi [OPTION]...\nTry 'nvidia-smi --help'\n",
    "a crash": "Segmentation fault (core dumped)\n",
    "very much": "x" * 50_000,
    "wrong units": "00000000:3B:00.0, 0, 40 GiB\n",
    "negative numbers": ", ".join(["-1"] * 23) + "\n",
    "a size without end": f"00000000:3B:00.0, 0, {'9' * 5000}\n",
    "numbers without end": ", ".join(["9" * 5000] * 23) + "\n",
    "words for numbers": ", ".join(["0", *["many"] * 22]) + "\n",
}
NO_JOBS = {"nothing", "blank lines"}
"""So says squeue that the node has no job: to `processes` that is an answer."""


@EACH_ASKING
@table("code", {"absent": NO_PROGRAM, "hangs": TIMED_OUT, "cannot be run": CANNOT_RUN, "is killed": -9, "fails": 1})
def test_a_program_that_gives_no_answer_leaves_a_check_without_one(worker: Worker, check: Check, code: int) -> None:
    status, runner = worker.look(check, Result(code=code, stderr="no answer"))
    assert runner.commands
    assert status is Status.NOT_CHECKED


@EACH_ASKING
@pytest.mark.parametrize("said", BABBLE)
def test_a_program_that_babbles_is_not_believed(worker: Worker, check: Check, said: str) -> None:
    for code in (0, 1, 255, -11):
        if not (check.name == "processes" and code == 0 and said in NO_JOBS):
            shutil.rmtree(worker.state, ignore_errors=True)
            status, _ = worker.look(check, Result(code=code, stdout=BABBLE[said], stderr=BABBLE[said]))
            assert status not in {Status.FAIL, Status.OK} or (check.name == "gpu-xid" and status is Status.OK), code


@EACH_ASKING
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(code=st.sampled_from([0, 1, 2, 255, -6, -11]), said=st.text(), error=st.text())
def test_whatever_a_program_says_it_is_no_fault_of_the_node(
    worker: Worker, check: Check, code: int, said: str, error: str
) -> None:
    shutil.rmtree(worker.state, ignore_errors=True)
    status, _ = worker.look(check, Result(code=code, stdout=f"{said}?", stderr=error))
    assert status is not Status.FAIL


# ---------------------------------------------------------------- files


def files(below: Path) -> Iterator[Path]:
    return (path for path in sorted(below.rglob("*")) if path.is_file() and not path.is_symlink())


READS = {"dns": "run", "gpu-free": "proc", "gpu-xid": "proc", "infiniband": "sys", "memory": "sys", "processes": "proc"}
"""Where below the root the files are that a check reads."""
GARBAGE = [None, b"", b"\xff\xfe\x00", "²".encode(), b"-1", b"9" * 5000, *[BABBLE["a page of the web"].encode()]]


@pytest.mark.parametrize(("name", "below"), READS.items(), ids=list(READS))
def test_a_file_that_is_absent_or_garbage_is_no_fault_of_the_node(worker: Worker, name: str, below: str) -> None:
    for path in list(files(worker.root / below)):
        well = path.read_bytes()
        for garbage in GARBAGE:
            path.unlink() if garbage is None else path.write_bytes(garbage)
            assert worker.look(CHECKS[name])[0] is not Status.FAIL, (path, garbage and garbage[:20])
        path.write_bytes(well)


@EACH
@pytest.mark.parametrize("garbage", GARBAGE, ids=lambda garbage: "absent" if garbage is None else repr(garbage[:9]))
def test_files_that_are_all_absent_or_garbage_are_no_fault_of_the_node(
    worker: Worker, check: Check, garbage: bytes | None
) -> None:
    for path in list(files(worker.root)):
        path.unlink() if garbage is None else path.write_bytes(garbage)
    assert worker.look(check)[0] is not Status.FAIL


@EACH
@pytest.mark.parametrize("gone", ["root/proc", "root/sys", "root/run", "root/tmp", "root", "jail", "jail/.slurmstack"])
def test_a_directory_that_is_not_there_is_no_fault_of_the_node(
    worker: Worker, check: Check, tmp_path: Path, gone: str
) -> None:
    shutil.rmtree(tmp_path / gone)
    assert worker.look(check)[0] is not Status.FAIL


@EACH
def test_a_garbled_memory_is_none(worker: Worker, check: Check) -> None:
    worker.look(check)
    kept = {path: path.read_bytes() for path in files(worker.state)}
    for path, well in kept.items():
        garbled: list[bytes] = [text.encode() for text in BABBLE.values()] + [b"\xff\xfe", b"[]", b"{}", b"null"]
        if path.suffix == ".json":
            held = json.loads(well)
            odd: tuple[object, ...] = (None, 7, -1, "x", [], {}, [None], [[7]], {"x": 7})
            garbled += [json.dumps({**held, key: value}).encode() for key in held for value in odd]
        for garbage in garbled:
            for each, text in kept.items():
                each.write_bytes(garbage if each == path else text)
            assert worker.look(check)[0] is not Status.FAIL, (path.name, garbage[:200])


@pytest.mark.parametrize("name", sorted({*CHECKS} - {"gpu-free"}))
def test_no_shared_thing_is_looked_at_before_or_after_a_job(name: str) -> None:
    """Slurm drains for a failing prolog or epilog by itself, and so would drain all nodes for what they share."""
    assert CHECKS[name].contexts == {"periodic"}
