"""What a site says of the tests: a JSON file, of which every key may be left out.

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
from typing import Any, Final

from images.health.node_tests.catalog import TESTS
from images.health.node_tests.contract import Place
from images.health.node_tests.expected import Expected, load
from images.health.node_tests.plan import Policy
from images.health.node_tests.retest import RETEST_SECONDS
from images.health.node_tests.slurm import Account
from images.health.watch.limit import Limit

SHORTEST_INTERVAL: Final = 600
"""Seconds."""

_TEXTS: Final = ("directory", "nccl_tests", "mpi", "account", "qos", "partition")
_KEYS: Final = frozenset(
    {"tests", "intervals", "max_under_test", "platforms", "infiniband", "expected", "retest_after", *_TEXTS}
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a site says."""

    policy: Policy
    expected: Expected
    place: Place
    account: Account
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
    if path is None:
        return parse({})
    try:
        return parse(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def parse(given: Any) -> Settings:
    """Raises ValueError, which names the key."""
    if not isinstance(given, dict):
        raise ValueError("the settings are no mapping")  # noqa: TRY004  (what a user wrote)
    if unknown := set(given) - _KEYS:
        raise ValueError(f"{', '.join(sorted(unknown))}: there is no such key; there are {', '.join(sorted(_KEYS))}")
    texts = {name: _text(given[name], name) for name in _TEXTS if name in given}
    usual = Place()
    names = given.get("tests", [name for name, test in TESTS.items() if test.default])
    if not isinstance(names, list):
        raise ValueError("tests: this is no list")  # noqa: TRY004
    if absent := [str(name) for name in names if name not in TESTS]:
        raise ValueError(f"tests: {', '.join(absent)}: there is no such test; there are {', '.join(sorted(TESTS))}")
    return Settings(
        policy=Policy(
            tests=[TESTS[name] for name in names],
            max_under_test=Limit.parse(str(given.get("max_under_test", "10%"))),
            intervals=_intervals(given.get("intervals", {})),
        ),
        expected=load(TESTS, given.get("expected")),
        place=Place(
            directory=texts.get("directory") or usual.directory,
            nccl_tests=texts.get("nccl_tests") or usual.nccl_tests,
            mpi=texts.get("mpi") or usual.mpi,
        ),
        account=Account(
            account=texts.get("account", ""), qos=texts.get("qos", ""), partition=texts.get("partition", "")
        ),
        platforms=_texts(given.get("platforms", {}), "platforms"),
        infiniband=frozenset(_list(given.get("infiniband", []), "infiniband")),
        retest_after=_seconds(given.get("retest_after", RETEST_SECONDS), "retest_after", least=1),
    )


def _intervals(given: Any) -> dict[str, float]:
    if not isinstance(given, dict):
        raise ValueError("intervals: this is no mapping")  # noqa: TRY004
    for name in given:
        if name not in TESTS:
            raise ValueError(f"intervals.{name}: there is no such test; there are {', '.join(sorted(TESTS))}")
    return {name: _seconds(value, f"intervals.{name}", least=SHORTEST_INTERVAL) for name, value in given.items()}


def _seconds(value: Any, key: str, *, least: int) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= least:
        raise ValueError(f"{key}: {value!r}: allowed are seconds from {least} on")
    return float(value)


def _text(value: Any, key: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{key}: {value!r} is no text")  # noqa: TRY004
    return value


def _list(value: Any, key: str) -> list[str]:
    if not isinstance(value, list):
        raise ValueError(f"{key}: this is no list")  # noqa: TRY004
    return [_text(entry, key) for entry in value]


def _texts(value: Any, key: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError(f"{key}: this is no mapping")  # noqa: TRY004
    return {name: _text(entry, f"{key}.{name}") for name, entry in value.items()}
