"""What a test of nodes is: a command that runs in a Slurm job, and how its output is read.

A test measures; whether the figures are good is told by what is expected of the platform (`expected.py`). As with
checks (`images/health/contract.py`), what is not understood is `not checked`, never a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from images.health.contract import FaultClass, Hardware

DAY_SECONDS: Final = 86_400.0

SCRATCH: Final = "{scratch}"
"""In an argument of a command: a directory of the test's own, which is gone after it."""
CPUS: Final = "{cpus}"
"""In an argument of a command: how many CPUs the job may use."""


class UnreadableError(ValueError):
    """The output of a test is not what its tool is known to say."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a test runs, as far as its command depends on it."""

    gpus: int = 0
    """Of each node."""
    directory: str = "/var/tmp"
    """On the file system that is measured."""
    nccl_tests: str = "all_reduce_perf"
    """NCCL's all-reduce test, built with MPI, as jobs find it."""
    mpi: str = "pmix"
    """How srun starts what is built with MPI."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What the output of a test says."""

    figures: Mapping[str, float] = field(default_factory=dict)
    """By name, in the unit that the test declares."""
    bad: str = ""
    """What the tool itself calls a fault, for people."""
    passed: bool = False
    """The tool itself says that all is well: nothing has to be expected of its figures."""


@dataclass(frozen=True, kw_only=True)
class NodeTest:
    """The declared contract of a test."""

    name: str
    """Short, in small letters, digits and `-`: it is in job names, drain reasons and options."""
    summary: str
    """What it measures, in one line."""
    command: Callable[[Place], tuple[str, ...]]
    """The program and its arguments. It runs once, on the first of the job's nodes."""
    keep: str
    """What matters of the output, as a regular expression that is searched in each line: what comes back from the node
    is short. Of a line that matches its groups are kept, divided by blanks, or the whole match (`on_node.py`)."""
    read: Callable[[str], Reading]
    """What that says. Raises UnreadableError."""
    units: Mapping[str, str] = field(default_factory=dict)
    """Figure -> its unit, as people write it."""
    hardware: Hardware = "any"
    gpus: int = 0
    """GPUs that a node must have."""
    nodes: int = 1
    """1 or 2. Of a pair that is slow nobody knows which node it is: that takes more runs (`split.py`)."""
    seconds: float = 60.0
    """Time limit of the command."""
    interval: float = DAY_SECONDS
    """Seconds from one run on a node to the next."""
    fault: FaultClass = "hardware"
    """Whose fault a bad figure is."""
    environment: Mapping[str, str] = field(default_factory=dict)
    default: bool = True
    """Whether it runs where the site says nothing."""

    @property
    def minutes(self) -> int:
        """Time limit of the job: the command's, and time to start and to report."""
        return int(-(-(self.seconds + 60) // 60))
