"""The tests of nodes: what each runs in a Slurm job, how the output of its tool is read, and what is expected of it.

What is expected of a platform are figures with their sources (`expected.json`), and what a site says itself:

    {"8x NVIDIA H200": {"nccl-node": {"busbw": {"min": 420, "unit": "GB/s", "source": "..."}}}}

A platform is a number of GPUs of a model, as `nvidia-smi` names it, or a pool of the site's. Where nothing is known
nothing is expected, and the figure is only told. The published minimum that is lowest is taken, as a node is drained
for it: a site that knows its machines sets a higher one. What is not understood is `not checked`, never a fault.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from images.common.health.contract import FaultClass, Result, Status, fail, not_checked

DATA: Final = Path(__file__).with_name("expected.json")
NO_PROGRAM: Final = 127
_NUMBER: Final = r"(\d+(?:\.\d+)?)"

Expected = Mapping[str, Mapping[str, Mapping[str, float]]]
"""Platform -> test -> figure -> the least that it may be, in the unit of the test."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Something that a test measures."""

    unit: str
    """As people write it."""
    pattern: str
    """Finds the number, as its last group, in exactly one line of the output, whose blanks are single ones."""
    factor: float = 1.0
    """From the tool's unit to ours."""


@dataclass(frozen=True, kw_only=True)
class NodeTest:
    """A test, as this program runs it."""

    name: str
    """Short, in small letters, digits and `-`: it is in job names and drain reasons."""
    command: tuple[str, ...]
    """`{gpus}` of the node; `{cpus}` of the job and `{scratch}`, a directory that is gone after the test."""
    figures: Mapping[str, Figure]
    faults: str = ""
    """Finds lines in which the tool itself calls something a fault of the hardware."""
    gpus: int = 0
    """GPUs that a node must have."""
    infiniband: bool = False
    """Whether its pool must have InfiniBand."""
    minutes: int = 2
    """Time limit of the job."""
    fault: FaultClass = "hardware"
    """Whose fault a figure is that is too low."""


_SYSBENCH_SIZES: Final = ("--threads={cpus}", "--time=20")
_CPU: Final = NodeTest(  # primes that all CPUs find together in a second
    name="cpu-speed",
    command=("sysbench", "cpu", *_SYSBENCH_SIZES, "--cpu-max-prime=20000", "run"),
    figures={"events": Figure(unit="events/s", pattern=rf"events per second: ?{_NUMBER}$")},
)
# Each thread writes a block of its own that no cache holds. Not comparable with STREAM, which counts other accesses.
_MEMORY: Final = NodeTest(
    name="memory-bandwidth",
    command=(
        *("sysbench", "memory", *_SYSBENCH_SIZES),
        *("--memory-block-size=64M", "--memory-total-size=1000T", "--memory-scope=local", "--memory-oper=write", "run"),
    ),
    figures={"write": Figure(unit="GB/s", pattern=rf"transferred \({_NUMBER} MiB/sec\)", factor=1.048576e-3)},
)

# One stream, past the page cache.
_FILESYSTEM: Final = NodeTest(
    name="filesystem-throughput",
    command=(
        *("fio", "--output-format=terse", "--terse-version=3", "--filename={scratch}/file", "--size=1G", "--bs=1M"),
        *("--direct=1", "--ioengine=libaio", "--iodepth=16"),
        *("--name=write", "--rw=write", "--end_fsync=1", "--name=read", "--stonewall", "--rw=read"),
    ),
    # Of the job of this name where its error is 0, in KiB/s (fio(1), "TERSE OUTPUT").
    figures={
        "write": Figure(unit="MB/s", pattern=r"^3;[^;]*;write;[^;]*;0;(?:[^;]*;){42}(\d+);", factor=1.024e-3),
        "read": Figure(unit="MB/s", pattern=r"^3;[^;]*;read;[^;]*;0;[^;]*;(\d+);", factor=1.024e-3),
    },
    minutes=3,
    fault="node",
)

# 8 GB are enough for the bandwidth to be reached, and fit thrice into 40 GB.
_NCCL_SIZES: Final = ("-b", "8G", "-e", "8G", "-n", "20", "-w", "5", "-c", "1")


def _nccl(name: str, *environment: str, infiniband: bool = False) -> NodeTest:
    return NodeTest(
        name=name,
        command=("env", *environment, "all_reduce_perf", *_NCCL_SIZES, "-g", "{gpus}"),
        figures={"busbw": Figure(unit="GB/s", pattern=rf"Avg bus bandwidth ?: {_NUMBER}$")},
        faults=r"Out of bounds values ?: (?!0 OK).*",
        gpus=2,
        infiniband=infiniband,
        minutes=4,
    )


TESTS: Final[Mapping[str, NodeTest]] = {
    test.name: test
    for test in (
        *(_CPU, _MEMORY, _FILESYSTEM, _nccl("nccl-node")),
        # All goes out by one port and in by another: a slow one is this node's, and no second node has to be asked.
        _nccl("nccl-infiniband", "NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", "NCCL_ALGO=Ring", infiniband=True),
    )
}
"""All there are, by name."""


def load(own: Expected) -> Expected:
    """Our data and the site's own, which count where both have a figure."""
    minima = {
        platform: {test: {name: float(entry["min"]) for name, entry in figures.items()} for test, figures in of.items()}
        for platform, of in json.loads(DATA.read_text(encoding="utf-8")).items()
    }
    for platform, tests in own.items():
        for test, figures in tests.items():
            minima.setdefault(platform, {}).setdefault(test, {}).update(figures)
    return minima


def judge(test: NodeTest, comment: str, state: str, expected: Expected, pools: Iterable[str]) -> Result:
    """The result of one run, from the Comment that the batch script has given to its job (`on_node.py`).

    `state`: how the job ended. `pools`: of the node, which count before the platform that the node has told.
    """
    try:
        parsed = json.loads(comment)
        code, given, end = parsed["code"], parsed["figures"], parsed.get("end", "")
        faults, platform = parsed["faults"], str(parsed["platform"])
        numbers = {name: [float(number) for number in given[name]] for name in test.figures}
    except (ValueError, TypeError, KeyError, AttributeError):
        return not_checked(f"its job ended as {state} and told nothing")
    # Nothing that is measured here is 0, whatever the hardware does.
    if any(len(found) != 1 or found[0] <= 0 for found in numbers.values()):
        return not_checked(end if code == NO_PROGRAM and end else f"ended with code {code}, without a figure: {end}")
    figures = {name: numbers[name][0] * figure.factor for name, figure in test.figures.items()}
    if faults:
        return fail(test.fault, ", ".join([*faults, _measured(test, figures)]))
    if code != 0:
        return not_checked(f"ended with code {code}: {_measured(test, figures)}")
    names = [name for name in (*pools, platform) if name]
    minima = next((expected[name][test.name] for name in names if test.name in expected.get(name, {})), {})
    slow = {name: least for name, least in minima.items() if figures[name] < least}
    if minima:
        measured = _measured(test, figures, slow)
        return fail(test.fault, measured) if slow else Result(status=Status.OK, message=measured)
    known = " or ".join(names) or "a platform that is not known"
    return not_checked(f"{_measured(test, figures)}; nothing is known to be expected of {known}")


def _measured(test: NodeTest, figures: Mapping[str, float], slow: Mapping[str, float] | None = None) -> str:
    """The figures, and what was expected of those that are too low: `busbw 212 GB/s (at least 420 expected)`."""
    asked = {name: f" (at least {least:.4g} expected)" for name, least in (slow or {}).items()}
    parts = (f"{name} {value:.4g} {test.figures[name].unit}{asked.get(name, '')}" for name, value in figures.items())
    return ", ".join(parts)
