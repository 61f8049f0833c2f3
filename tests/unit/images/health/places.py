"""A node with a root, a jail, a state directory, GPUs and processes of its own, and tables of cases."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from images.common.command import NO_PROGRAM, TIMED_OUT, Result
from images.common.health.contract import Check, Node
from images.common.health.contract import Result as Found
from images.common.steps import SLURMSTEPD
from images.health.runner import attempt
from tests.fakes.commands import Answer, FakeRunner


def make_node(tmp_path: Path, **more: object) -> Node:
    """A node with a populated jail, whose /proc, /sys and /run are empty."""
    jail = tmp_path / "jail"
    (jail / ".slurmstack").mkdir(parents=True, exist_ok=True)
    root = tmp_path / "root"
    root.mkdir(exist_ok=True)
    node = Node(name="w-0", jail=jail, root=root, state=tmp_path / "state", local_disks=(root,))
    return replace(node, **more)  # type: ignore[arg-type]


def write(path: Path, text: str) -> None:
    """A file, with the directories above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def add_process(
    proc: Path,
    pid: int,
    *,
    comm: str = "sleep",
    state: str = "S",
    title: str = "",
    uid: int = 1000,
    parent: int = 1,
    threads: int = 1,
    runs: str = "",
) -> None:
    """`runs`: the program, below the root directory; by default slurmstepd for root's process of that name."""
    directory = proc / str(pid)
    directory.mkdir(parents=True)
    (directory / "stat").write_text(f"{pid} ({comm}) {state} {parent} {pid} " + "0 " * 14 + f"{threads} 0 4711 0 0\n")
    (directory / "cmdline").write_text(title)
    (directory / "status").write_text(f"Name:\t{comm}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    run(proc, pid, runs or (SLURMSTEPD if (comm, uid) == ("slurmstepd", 0) else f"usr/bin/{comm.replace('/', '')}"))


def run(proc: Path, pid: int, program: str) -> None:
    """Have a process run a program, below the root directory."""
    path = proc.parent / program
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    link = proc / str(pid) / "exe"
    link.unlink(missing_ok=True)
    link.symlink_to(path)


def run_at_once(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """Let this module of images/health run its checks so."""

    def run_checks(checks: Sequence[Check], node: Node, **_: Any) -> dict[str, Found]:
        tools: Any = FakeRunner()
        return {check.name: attempt(check, node, tools) for check in checks}

    monkeypatch.setattr(f"images.health.{module}.run_checks", run_checks)


DATA = Path(__file__).parent / "data"
HANGS = Result(code=TIMED_OUT, stderr="no answer within 8 s")
ABSENT = Result(code=NO_PROGRAM, stderr="no such program")
GARBAGE = Result(code=0, stdout="Segmentation fault (core dumped)\n")

QUERY = "nvidia-smi --query-gpu="


def text(name: str) -> Result:
    """A whole answer from a file."""
    return Result(code=0, stdout=(DATA / name).read_text(encoding="utf-8"))


class Smi:
    """Answers `--query-gpu=` from a file with all fields; `changes` overrides fields by GPU's index and name."""

    def __init__(
        self,
        name: str,
        changes: Mapping[tuple[int, str], str] | None = None,
        *,
        unknown: Sequence[str] = (),
        gone: Sequence[int] = (),
    ) -> None:
        lines = (DATA / "nvidia" / f"{name}.csv").read_text(encoding="utf-8").splitlines()
        names = lines[0].split(", ")
        self.rows = [dict(zip(names, line.split(", "), strict=True)) for line in lines[1:]]
        self.unknown = unknown
        self.gone = gone
        for (index, field), value in (changes or {}).items():
            self.rows[index][field] = value

    def __call__(self, argv: Sequence[str]) -> Result:
        fields = argv[1].partition("=")[2].split(",")
        for field in fields:
            if field in self.unknown or field not in self.rows[0]:
                return Result(code=2, stdout=f'Field "{field}" is not a valid field to query.\n\n')
        rows = [row for row in self.rows if int(row["index"]) not in self.gone]
        return Result(code=0, stdout="".join(", ".join(row[field] for field in fields) + "\n" for row in rows))


def machine(query: Answer | None = None) -> FakeRunner:
    """A healthy machine with 8 H100, with other answers where given."""
    answers: dict[str, Answer] = {
        "nvidia-smi": Result(code=2, stderr="the tests' nvidia-smi does not know this"),
        QUERY: query or Smi("h100-8"),
    }
    return FakeRunner(answers)


def gpu_node(path: Path, gpus: int = 8) -> Node:
    """A node whose files are below `path`."""
    return Node(name="gpu-0", gpus=gpus, root=path, state=path / "state")


def said(path: Path, check: Check, runner: FakeRunner) -> str:
    """What a check says in words, on a node that should have as many GPUs as its nvidia-smi knows (8 if none)."""
    query = runner.answers[QUERY]
    where = gpu_node(path, len(query.rows) if isinstance(query, Smi) else 8)
    return words(attempt(check, where, runner))


def table(names: str, rows: Mapping[str, object]) -> pytest.MarkDecorator:
    """A test for each row; its key is its name."""
    return pytest.mark.parametrize(names, list(rows.values()), ids=list(rows))


def outcomes(names: str, rows: Sequence[tuple[object, ...]]) -> pytest.MarkDecorator:
    """A test for each row; what is expected, which comes first, is its name."""
    return pytest.mark.parametrize(f"expected, {names}", rows, ids=[str(row[0]) for row in rows])


def words(result: Found) -> str:
    """A result in one line: `ok`, `warn [node]: the clock is 3 s off`."""
    fault = f" [{result.fault}]" if result.fault else ""
    return f"{result.status.value}{fault}" + (f": {result.message}" if result.message else "")


class Like:
    """Equals all texts of this form; `...` stands for anything."""

    def __init__(self, form: str) -> None:
        self.form = form

    def __eq__(self, other: object) -> bool:
        pattern = ".*".join(re.escape(part) for part in self.form.split("..."))
        return isinstance(other, str) and re.fullmatch(pattern, other, re.DOTALL) is not None

    def __hash__(self) -> int:
        return hash(self.form)

    def __repr__(self) -> str:
        return repr(self.form)
