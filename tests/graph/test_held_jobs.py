"""What a worker is told of holding jobs to what they asked for, and of what they may do."""

from __future__ import annotations

from typing import Any

import pytest

from cli.program.values import reveal
from tests import stacks
from tests.recordings import record
from tests.stacks import with_change


def told(stack: dict[str, Any], **fields: Any) -> dict[str, str]:
    """Of its first pool's workers."""
    pool = next(iter(stack["worker_nodes"]))
    for field, value in fields.items():
        stack = with_change(stack, f"worker_nodes.{pool}.{field}", value)
    (found,) = [item for item in record(stack, stack="test") if item.name == f"slurm-pool-{pool}-pods"]
    (slurmd,) = reveal(found.inputs)["spec"]["template"]["spec"]["containers"]
    variables = slurmd["env"]
    names = ("CONFINEMENT", "CONTAINERS", "SHARED_CPUS")
    return {item["name"]: item["value"] for item in variables if item["name"] in names}


def test_by_default_a_worker_is_told_nothing() -> None:
    assert told(stacks.existing()) == {}


@pytest.mark.parametrize("wanted", ["required", "off"])
def test_it_is_told_what_the_stack_file_wants(wanted: str) -> None:
    assert told(stacks.existing(), confinement=wanted) == {"CONFINEMENT": wanted}


def test_it_is_told_whether_users_may_start_containers() -> None:
    assert told(stacks.existing(), containers=True) == {"CONTAINERS": "yes"}
    assert told(stacks.existing(), containers=False) == {}


def test_cores_are_not_divided_where_the_pod_has_not_asked_for_all_of_them() -> None:
    """As on the local cluster, where two workers share two CPUs: both would bind their first job to the first."""
    assert told(stacks.dev()) == {"SHARED_CPUS": "yes"}
