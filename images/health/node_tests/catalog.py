"""All tests there are, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from images.health.node_tests.contract import NodeTest
from images.health.node_tests.kinds import dcgm, filesystem, nccl, sysbench

TESTS: Final[Mapping[str, NodeTest]] = {
    test.name: test for test in (sysbench.CPU, sysbench.MEMORY, filesystem.TEST, *nccl.TESTS, *dcgm.TESTS)
}
