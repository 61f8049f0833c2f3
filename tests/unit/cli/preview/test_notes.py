"""What a preview says of a stack file that is valid and hardly meant so."""

from __future__ import annotations

from typing import Any

import pytest

from cli.preview.document import notes_of
from config import load_config
from tests import stacks
from tests.stacks import with_change

SPARE = {"size": 1, "resources": {"cpus": 1, "memory": "2Gi"}}
BOB = {"uid": 10002}


def notes(*changes: tuple[str, Any]) -> tuple[str, ...]:
    sections = stacks.existing()
    for path, value in changes:
        sections = with_change(sections, path, value)
    return notes_of(load_config(sections))


def test_a_pool_that_no_partition_has_is_named() -> None:
    pools = ("partitions.every", {"pools": list(stacks.existing()["worker_nodes"])})
    assert notes(pools) == ()
    assert notes(pools, ("worker_nodes.spare", SPARE)) == (
        "worker_nodes.spare is in no partition: no job can run there",
    )
    without = {name: value for name, value in stacks.existing().items() if name != "partitions"}
    assert notes_of(load_config(with_change(without, "worker_nodes.spare", SPARE))) == ()


@pytest.mark.parametrize(
    ("enforce", "is_told"), [(None, True), (["limits"], True), (["safe"], True), (["nosteps"], False)]
)
def test_a_user_whose_jobs_slurm_refuses_is_named(enforce: list[str] | None, is_told: bool) -> None:
    told = "users.bob has no accounts: Slurm refuses every job of theirs"
    changes = [("users", {"bob": BOB}), ("accounts", {"ml": {}})]
    assert (told in notes(*changes, ("accounting.enforce", enforce))) == is_told
    assert told not in notes(("users", {"bob": {**BOB, "accounts": ["ml"]}}), ("accounts", {"ml": {}}))
    assert told not in notes(("users", {"bob": BOB}), ("accounts", {}))
