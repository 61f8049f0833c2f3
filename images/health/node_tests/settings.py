"""What a site says of the tests: a JSON file, of which every key may be left out.

It was checked when it was written (config/sections/node_tests.py). What a newer one has beyond this is passed over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from images.health.node_tests.catalog import TESTS, NodeTest
from images.health.node_tests.expected import Expected, load
from images.health.watch.view import Limit


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a site says."""

    tests: Sequence[NodeTest]
    intervals: Mapping[str, float]
    """Seconds between two runs of a test, where that is not the test's own."""
    max_under_test: Limit
    expected: Expected
    platforms: Mapping[str, str]
    """Pool -> what its nodes are called in `expected`."""
    infiniband: frozenset[str]
    """Pools with InfiniBand between their nodes."""
    directory: str
    """On the file system that is measured."""
    nccl_tests: str
    """NCCL's all-reduce test, built with MPI, as jobs find it."""
    mpi: str
    """How srun starts what is built with MPI."""
    account: str
    """On whose account tests run, where the site's accounting asks for one."""
    qos: str
    partition: str
    """In which tests run, in place of the first one of a node."""


def read(path: Path | None) -> Settings:
    """The settings of a file, or the defaults. Raises ValueError."""
    try:
        return parse({} if path is None else json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} cannot be used: {error}") from error


def parse(given: Mapping[str, Any]) -> Settings:
    """Raises ValueError, TypeError, AttributeError."""
    names = given.get("tests", [name for name, test in TESTS.items() if test.default])
    return Settings(
        tests=[TESTS[name] for name in names if name in TESTS],
        intervals={name: float(seconds) for name, seconds in given.get("intervals", {}).items()},
        max_under_test=Limit.parse(given.get("max_under_test", "10%")),
        expected=load(given.get("expected", {})),
        platforms=dict(given.get("platforms", {})),
        infiniband=frozenset(given.get("infiniband", [])),
        directory=given.get("directory", "/var/tmp"),
        nccl_tests=given.get("nccl_tests", "all_reduce_perf"),
        mpi=given.get("mpi", "pmix"),
        account=given.get("account", ""),
        qos=given.get("qos", ""),
        partition=given.get("partition", ""),
    )
