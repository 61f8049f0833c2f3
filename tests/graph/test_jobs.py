"""What the rules for jobs read out of the objects that the program registers, and of Pulumi's comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.change import engine_plan as engines
from cli.change.jobs import partitions_in, pools_of, slurm_conf_in
from tests import stacks
from tests.fakes.queue_cluster import FakeKubectl, effects, job, objects, pending
from tests.graph.state import compare_files, stack_of
from tests.recordings import record
from tests.stacks import with_change


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


def test_an_update_by_the_engine_is_judged_by_the_cluster_and_by_pulumi_s_own_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = stacks.existing()
    after = with_change(before, "worker_nodes.cpu.size", 1)
    comparison = compare_files(tmp_path, before, after)
    queue = [job("1", nodes="cpu-3"), job("2", nodes="gpu-0"), job("3", nodes="cpu-0"), pending("4")]
    text = "".join(f"{line}\n" for line in queue)
    kubectl = FakeKubectl(queue=text, in_force=slurm_conf_in(registered(before)), there=registered(before))
    monkeypatch.setattr(engines, "reach_if_made", lambda _: kubectl)
    found = engines.jobs_of(stack_of(tmp_path, after), comparison)
    assert effects(found) == {"1": "waits"}
