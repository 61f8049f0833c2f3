"""Runs a step: its commands, pytest, and once more what has failed, in a new process with new clusters."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from local import cluster
from tests.stacks import ROOT
from tests.suites.steps import Step

LOGS = ROOT / "test-logs"
"""Where JUnit files and the logs of failed tests lie."""

MOST_RESCUED = 2
"""So many modules of a suite may fail once and pass in a new process; with more the suite has failed."""

STEP_LIMIT_S = 2400
"""After that a step is ended: something hangs that pytest's own limit for a test does not see."""

# A hang that the limit for a test does not see, as in a fixture, shows where it is.
_TOLD = ("-q", "-rfEs", "--durations=15", "--durations-min=5", "-o", "faulthandler_timeout=1200")
# Where a worker has ended, pytest-xdist may wait for ever for the one in its place (3.8, whatever is said by scope).
_XDIST = ("--no-loadscope-reorder", "--max-worker-restart=0")
PYTEST = ("-m", "pytest", *_TOLD, *_XDIST, "-o", "junit_family=xunit1")

Run = Callable[[tuple[str, ...]], int]
"""Runs this Python with these arguments to its end; its exit status."""


def git(*arguments: str) -> str:
    """What git prints. Empty where it fails, as for a revision that is not here."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def commit() -> str:
    """The commit that is checked out, with `+` where files differ from it."""
    revision, changed = git("rev-parse", "HEAD"), git("status", "--porcelain", "--", ".", ":(exclude)test-record")
    return revision + ("+" if changed or not revision else "")


def in_the_way(steps: Iterable[Step]) -> bool:
    """Whether a local cluster is there that a step would take away; it is said then."""
    found = any(step.needs_no_cluster for step in steps) and cluster.status().exists
    if found:
        print("A local cluster is there, and steps make and remove one: run `make down` first, or name other steps.")
    return found


@dataclass(frozen=True)
class Outcome:
    """Tests of one run, by their ids as pytest takes them."""

    passed: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    """With an error in set-up or teardown, too."""
    skipped: frozenset[str] = frozenset()
    crashed: frozenset[str] = frozenset()
    """Of those that failed: in these a worker of pytest-xdist has ended."""


def read(path: Path) -> Outcome | None:
    """What pytest has written into its JUnit file (family xunit1); None where it did not come to its end."""
    try:
        cases = ET.parse(path).getroot().iter("testcase")
    except (OSError, ET.ParseError):
        return None
    found: dict[str, set[str]] = {"passed": set(), "failed": set(), "skipped": set(), "crashed": set()}
    for case in cases:
        error = case.find("error")
        if error is not None and "crashed while running" in error.get("message", ""):
            found["crashed"].add(_id(case))
        bad = error is not None or case.find("failure") is not None
        found["failed" if bad else "passed" if case.find("skipped") is None else "skipped"].add(_id(case))
    found["passed"] -= found["failed"]
    found["skipped"] -= found["passed"] | found["failed"]
    return Outcome(**{name: frozenset(tests) for name, tests in found.items()})


def _id(case: ET.Element) -> str:
    """`tests/unit/test_x.py::Class::test_y[z]`; of a file that cannot be collected, the file."""
    file, name = case.get("file", ""), case.get("name", "")
    module = file.removesuffix(".py").replace("/", ".")
    if name == module:
        return file
    within = case.get("classname", "").removeprefix(module).strip(".")
    return "::".join(filter(None, (file, *within.split("."), name)))


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a step ended."""

    step: str
    seconds: float
    problem: str = ""
    """Why it failed, besides tests."""
    passed: int = 0
    skipped: int = 0
    failed: tuple[str, ...] = ()
    flaky: tuple[str, ...] = ()
    """Tests that failed and passed in a new process."""

    @property
    def ok(self) -> bool:
        return not self.failed and not self.problem


def run_python(arguments: tuple[str, ...]) -> int:
    """Run this Python in the repository, with all that it starts in one process group, to its end.

    On Ctrl-C it gets the same signal and the time to put away what it has made. Options of pytest that somebody has in
    the environment are left out: they would choose among the tests.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    process = subprocess.Popen(
        [sys.executable, *arguments], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        return process.wait(STEP_LIMIT_S)
    except subprocess.TimeoutExpired:
        print(f"ended: it took more than {STEP_LIMIT_S} s", flush=True)
        return _end(process)
    except BaseException:
        _end(process)
        raise


def _end(process: subprocess.Popen[bytes]) -> int:
    """Interrupt it, and kill it where that is not enough within two minutes."""
    for how in (signal.SIGINT, signal.SIGKILL):
        os.killpg(process.pid, how)
        try:
            return process.wait(120)
        except subprocess.TimeoutExpired:
            continue
    return process.wait()


def run_step(step: Step, *, may_rescue: int = MOST_RESCUED, run: Run = run_python) -> Result:
    """Run a step. At most `may_rescue` modules that failed get a second try."""
    started = time.monotonic()
    print(f"\n== {step.name}: {step.about}", flush=True)
    # Somebody may have made one since the suite began, and `after` would delete it with its data.
    if step.needs_no_cluster and cluster.status().exists:
        return Result(step=step.name, seconds=0, problem="not run: a local cluster is there; `make down` removes it")
    left = ""
    try:
        problem, first, second = _run(step, may_rescue, run)
    except OSError as error:  # a full disk, say: the other steps still run
        problem, first, second = f"not run to its end: {error}", Outcome(), Outcome()
    finally:
        left = _do(step.after, run)
    return Result(
        step=step.name,
        seconds=round(time.monotonic() - started, 1),
        problem=problem or left,
        passed=len((first.passed | second.passed) - second.failed),
        skipped=len(first.skipped),
        failed=tuple(sorted((first.failed - second.passed) | second.failed)),
        flaky=tuple(sorted(first.failed & second.passed)),
    )


def _run(step: Step, may_rescue: int, run: Run) -> tuple[str, Outcome, Outcome]:
    """Why it failed besides tests, what the tests did, and what those of failed modules did in a new process."""
    problem, first = _try(step, step.pytest, step.name, run)
    modules = tuple(sorted({test.partition("::")[0] for test in first.failed}))
    if problem or not modules or len(modules) > may_rescue:
        return problem, first, Outcome()
    print(f"\n== {step.name}: once more, in a new process: {' '.join(modules)}", flush=True)
    if left := _do(step.after, run):
        return left, first, Outcome()
    options = tuple(argument for argument in step.pytest if not argument.startswith("tests/"))
    problem, second = _try(step, (*options, *modules), f"{step.name}-again", run)
    return "", first, Outcome() if problem else second


def _try(step: Step, arguments: tuple[str, ...], name: str, run: Run) -> tuple[str, Outcome]:
    """Run the step's commands and pytest: why it failed besides tests, and what the tests did."""
    if problem := _do(step.before, run):
        return problem, Outcome()
    if not arguments:
        return "", Outcome()
    LOGS.mkdir(exist_ok=True)
    report = LOGS / f"{name}.xml"
    report.unlink(missing_ok=True)
    status = run((*PYTEST, f"--junitxml={report}", *arguments))
    outcome = read(report)
    if outcome is None:
        return f"pytest did not come to its end: status {status}", Outcome()
    return _problem(status, outcome), outcome


def _do(commands: Iterable[tuple[str, ...]], run: Run) -> str:
    """Run them up to the first that fails: what that was, or nothing."""
    for command in commands:
        if status := run(command):
            return f"{' '.join(command)} ended with status {status}"
    return ""


def _problem(status: int, outcome: Outcome) -> str:
    """Why a run that came to its end says nothing about all tests; empty: it does."""
    if status != bool(outcome.failed):
        return f"pytest ended with status {status}"
    if outcome.crashed:
        return f"a process of pytest ended in {', '.join(sorted(outcome.crashed))}; others may not have run"
    return "" if outcome.passed or outcome.failed else "all tests were skipped"


def load() -> float:
    """How busy the machine was in the last five minutes: processes that ran or wanted to."""
    return round(os.getloadavg()[1], 1)
