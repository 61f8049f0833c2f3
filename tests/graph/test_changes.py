"""What a change in the stack file changes in the graph: no more than it has to."""

from __future__ import annotations

from typing import Any

import pytest

from cli.program.values import reveal
from tests import stacks
from tests.graph.diff import Diff
from tests.recordings import record
from tests.stacks import with_change

FILES_AND_JOB = {"slurm-configuration-files", "slurm-configuration-active"}
"""What changes with any of Slurm's files: they, and the jobs that wait until slurmctld has them."""


@pytest.mark.parametrize("size", [0, 1, 5, 400])
def test_scaling_changes_one_property_of_one_object(size: int) -> None:
    diff = Diff(stacks.existing(), with_change(stacks.existing(), "worker_nodes.cpu.size", size))
    assert diff.changed == {"slurm-pool-cpu-pods": ["spec.replicas"]}
    assert not diff.added
    assert not diff.removed
    assert not diff.replaced


def test_adding_a_pool_touches_no_other_pool() -> None:
    pool = {"size": 3, "resources": {"cpus": 8, "memory": "32Gi"}}
    diff = Diff(stacks.existing(), with_change(stacks.existing(), "worker_nodes.another", pool))
    assert diff.added == ["slurm-pool-another", "slurm-pool-another-pods"]
    assert not diff.removed
    assert set(diff.changed) == FILES_AND_JOB


def test_reordering_pools_changes_nothing_but_the_order_of_lines() -> None:
    reordered = stacks.existing()
    reordered["worker_nodes"] = dict(reversed(reordered["worker_nodes"].items()))
    assert set(Diff(stacks.existing(), reordered).changed) <= FILES_AND_JOB


def test_removing_a_pool_touches_only_that_pool() -> None:
    without = stacks.existing()
    del without["worker_nodes"]["plain"]
    diff = Diff(stacks.existing(), without)
    assert diff.removed == ["slurm-pool-plain", "slurm-pool-plain-pods"]
    assert set(diff.changed) == FILES_AND_JOB


def test_a_slurm_setting_changes_the_files_in_place_and_touches_no_pod() -> None:
    diff = Diff(stacks.existing(), with_change(stacks.existing(), "slurm.settings.DefMemPerCPU", 600))
    assert diff.changed["slurm-configuration-files"] == ["data.slurm.conf"]
    assert set(diff.changed) == FILES_AND_JOB
    assert diff.replaced == ["slurm-configuration-active"], "the job that waits until Slurm has taken the files"


def test_another_package_in_the_jail_s_image_rolls_no_pod() -> None:
    diff = Diff(stacks.existing(), with_change(stacks.existing(), "images.jail", {"packages": ["vim"]}))
    assert set(diff.replaced) == {"slurm-jail-populate", "slurm-users-job", "slurm-users-list"}, "what runs in it"
    assert not {name for name in diff.changed if name.endswith("pods")}


def test_a_new_user_is_a_new_list_and_a_new_job_and_touches_no_pod() -> None:
    diff = Diff(stacks.existing(), with_change(stacks.existing(), "users.bob", {"uid": 10002}))
    # slurmctld learns of the user with its configuration, so the job that waits for that is a new one, too.
    assert diff.replaced == [
        "slurm-configuration-active",
        "slurm-policy-document",
        "slurm-policy-job",
        "slurm-users-job",
        "slurm-users-list",
    ]
    assert set(diff.changed) == {*diff.replaced, "slurm-configuration-files"}


def test_a_new_key_changes_the_jail_s_list_and_nothing_of_slurm_s() -> None:
    diff = Diff(stacks.existing(), with_change(stacks.existing(), "users.alice.ssh_authorized_keys", []))
    assert set(diff.changed) == {"slurm-users-job", "slurm-users-list"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("images.pull_secret", "another"),
        ("images.tag", "other"),
        ("slurm.settings.DefMemPerCPU", 600),
        ("users.bob", {"uid": 10002}),
        ("accounting.database", {"external": {"host": "db", "password": {"name": "db", "key": "password"}}}),
    ],
)
def test_a_job_has_another_name_exactly_when_anything_of_its_specification_is_another(path: str, value: Any) -> None:
    """A job's template can never change: the API would refuse it, and the provider would make the job anew."""

    def jobs(sections: dict[str, Any]) -> dict[str, tuple[str, Any]]:
        found = [item for item in record(sections, stack="test") if item.type.endswith(":Job")]
        return {item.name: (item.inputs["metadata"]["name"], reveal(item.inputs["spec"])) for item in found}

    before, after = jobs(stacks.existing()), jobs(with_change(stacks.existing(), path, value))
    changed = [name for name in before if before[name][1] != after[name][1]]
    assert changed
    assert changed == [name for name in before if before[name][0] != after[name][0]]


def test_another_image_rolls_the_pods_but_replaces_neither_them_nor_data() -> None:
    diff = Diff(stacks.existing(), with_change(stacks.existing(), "images.tag", "other"))
    assert not {"StatefulSet", "PersistentVolumeClaim"} & {name.rsplit("-", 1)[1] for name in diff.replaced}
    assert diff.replaced == [
        "slurm-configuration-active",
        "slurm-jail-populate",
        "slurm-policy-job",
        "slurm-users-job",
        "slurm-users-list",
    ]
    assert "slurm-controller-pods" in diff.changed
    assert "slurm-pool-cpu-pods" in diff.changed


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("login.size", 5),
        ("login.service_type", "ClusterIP"),
        ("jail.size", "2Ti"),
        ("controller.storage", "20Gi"),
        ("slurm.version", "26.05"),
        ("worker_nodes.cpu.drain_timeout", 600),
        ("worker_nodes.gpu.resources.memory", "1500Gi"),
    ],
)
def test_ordinary_changes_never_replace_keys_claims_or_workloads(path: str, value: Any) -> None:
    before = stacks.existing()
    before["login"].pop("source_ranges")
    diff = Diff(before, with_change(before, path, value))
    assert diff.changed
    kept = ("-pods", "-claim", "-state", "-munge", "-host-seed", "-namespace", "-service")
    assert not [name for name in diff.replaced if name.endswith(kept)]


def test_the_classification_knows_a_replacement_when_it_sees_one() -> None:
    diff = Diff(stacks.existing(), with_change(stacks.existing(), "jail.storage_class", "other"))
    assert diff.replaced == ["slurm-jail-claim"]
