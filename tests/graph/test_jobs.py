"""What the rules for jobs read out of the objects that the program registers, and of Pulumi's comparison."""

from __future__ import annotations

from typing import Any

from cli.change.job_effects import partitions_in, pools_of, slurm_conf_in
from tests import stacks
from tests.fakes.queue_cluster import objects
from tests.recordings import record


def registered(sections: dict[str, Any]) -> list[dict[str, Any]]:
    """Kubernetes objects of the program that hold no secrets."""
    found = [item.inputs for item in record(sections, stack="test") if item.type.startswith("kubernetes:")]
    return [item for item in found if item["kind"] in {"StatefulSet", "ConfigMap"}]


def test_pools_and_partitions_are_read_as_the_program_writes_them() -> None:
    sections = stacks.existing()
    real = registered(sections)
    pools = pools_of(real)
    assert pools == pools_of(objects(sections)), "the unit tests' objects are like the real ones"
    assert set(pools) == {"cpu", "gpu", "plain"}
    assert (pools["gpu"].size, pools["gpu"].grace) == (2, 7 * 24 * 3600 + 30)
    assert partitions_in(slurm_conf_in(real)) == {"main": ("cpu", "gpu"), "gpu": ("gpu",)}
