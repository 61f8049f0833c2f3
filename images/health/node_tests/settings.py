"""What a site says of the tests: a JSON file, of which every key may be left out.

It was checked when it was written (config/sections/node_tests.py). What a newer one has beyond this is passed over.

{
"tests": ["cpu-speed", "memory-bandwidth", "filesystem-throughput", "nccl-node", "nccl-pair", "dcgm-r1"],
"intervals": {"cpu-speed": 86400},
"max_under_test": "10%",
"platforms": {"POOL": "NAME"},
"infiniband": ["POOL"],
"expected": {"NAME": {"cpu-speed": {"events": 5000}}},
"directory": "/var/tmp",
"nccl_tests": "all_reduce_perf",
"mpi": "pmix",
"account": "", "qos": "", "partition": "",
"retest_after": 1800
}

`retest_after` is there for tests of this program: with less than the eleven minutes for which a result counts, the
watcher drains a node for its old result while it is measured again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from images.health.node_tests.catalog import TESTS
from images.health.node_tests.contract import Place
from images.health.node_tests.expected import Expected, load
from images.health.node_tests.plan import Policy
from images.health.node_tests.retest import RETEST_SECONDS
from images.health.watch.limit import Limit


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a site says."""

    policy: Policy
    expected: Expected
    place: Place
    account: str = ""
    """On whose account tests run, where the site's accounting asks for one."""
    qos: str = ""
    partition: str = ""
    """In which tests run, in place of the first one of a node."""
    platforms: Mapping[str, str] = field(default_factory=dict)
    """Pool -> what its nodes are called in `expected`."""
    infiniband: frozenset[str] = frozenset()
    """Pools with InfiniBand between their nodes."""
    retest_after: float = RETEST_SECONDS
    """Seconds after which a node that is drained for a test is measured again."""

    @property
    def pools(self) -> frozenset[str]:
        """Pools that the site names."""
        return frozenset(self.platforms) | self.infiniband


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
        policy=Policy(
            tests=[TESTS[name] for name in names if name in TESTS],
            max_under_test=Limit.parse(given.get("max_under_test", "10%")),
            intervals={name: float(seconds) for name, seconds in given.get("intervals", {}).items()},
        ),
        expected=load(given.get("expected", {})),
        place=Place(**{name: given[name] for name in ("directory", "nccl_tests", "mpi") if name in given}),
        **{name: given[name] for name in ("account", "qos", "partition") if name in given},
        platforms=dict(given.get("platforms", {})),
        infiniband=frozenset(given.get("infiniband", [])),
        retest_after=float(given.get("retest_after", RETEST_SECONDS)),
    )
