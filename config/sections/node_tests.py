"""`slurmstack:health.tests`: tests of nodes that run as Slurm jobs when nobody wants the nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from config.base import Section, once
from config.errors import unknown_name
from config.limits import Limit
from config.names import AccountName, QosName

TESTS: Final[Mapping[str, tuple[str, ...]]] = {
    "cpu-speed": ("events",),
    "memory-bandwidth": ("write",),
    "filesystem-throughput": ("read", "write"),
    "nccl-node": ("busbw",),
    "nccl-pair": ("busbw",),
    "dcgm-r1": ("passed",),
    "dcgm-r2": ("passed",),
    "dcgm-r3": ("passed",),
}
"""Test -> the figures that it measures (images/health/node_tests)."""

DEFAULT: Final = tuple(name for name in TESTS if name != "dcgm-r3")
"""What runs unless the stack file names others. The third level of dcgmi takes three quarters of an hour."""


def _test(name: str) -> str:
    if name not in TESTS:
        raise ValueError(unknown_name(name, TESTS, what="a test").removeprefix(f"{name!r} "))
    return name


def _number(value: object) -> object:
    if isinstance(value, bool):  # which counts as 1 or 0 otherwise
        raise ValueError("is not a number")  # noqa: TRY004 - pydantic tells of no other
    return value


def _expected(expected: dict[str, dict[str, dict[str, float]]]) -> dict[str, dict[str, dict[str, float]]]:
    for platform, tests in expected.items():
        for test, figures in tests.items():
            if test not in TESTS:
                raise ValueError(f"of {platform}: {unknown_name(test, TESTS, what='a test')}")
            for figure in figures:
                if figure not in TESTS[test]:
                    raise ValueError(f"of {platform}: {unknown_name(figure, TESTS[test], what=f'a figure of {test}')}")
    return expected


TestName = Annotated[str, AfterValidator(_test)]
Minimum = Annotated[float, Field(gt=0, allow_inf_nan=False), BeforeValidator(_number)]


class NodeTests(Section):
    """Tests that measure nodes and compare them with what is expected of their kind."""

    enabled: bool = Field(default=False, strict=True)
    """Whether there are any."""

    run: Annotated[tuple[TestName, ...], AfterValidator(once)] = DEFAULT
    """Which."""

    intervals: dict[TestName, Annotated[int, Field(ge=600, le=31_536_000, strict=True)]] = Field(default_factory=dict)
    """Seconds between two runs of a test on a node, where that is not the test's own."""

    max_under_test: Limit = "10%"
    """How many nodes may be under test at a time: a number, or a part of all such as `10%`."""

    expected: Annotated[dict[str, dict[str, dict[str, Minimum]]], AfterValidator(_expected)] = Field(
        default_factory=dict
    )
    """The least that is expected, by platform, test and figure. Of what is not known here or in our own table
    (images/health/node_tests/expected.json) figures are told and nothing follows."""

    platforms: dict[str, str] = Field(default_factory=dict)
    """Pool -> its name in `expected`, where that is not what its GPUs say of themselves (`8x NVIDIA H200`)."""

    directory: Annotated[str, Field(pattern=r"^/[A-Za-z0-9._/-]*$")] = "/var/tmp"
    """Where the throughput of the file system is measured, in the jail."""

    nccl_tests: Annotated[str, Field(pattern=r"^[A-Za-z0-9._/-]+$")] = "all_reduce_perf"
    """The program of nccl-tests in the jail, with its path where that is not in PATH."""

    account: AccountName = "health"
    """On whose account tests run. It is made where accounting is on and the stack file does not declare it."""

    qos: QosName | None = None
    """Quality of service of the tests. Default: the account's."""

    partition: str | None = None
    """Where tests run. Default: the first partition of each node."""

    @model_validator(mode="after")
    def _something_runs(self) -> NodeTests:
        if self.enabled and not self.run:
            raise ValueError("has enabled: true, but run: [] leaves nothing to test; leave run out, or name tests")
        return self
