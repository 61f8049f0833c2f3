"""What a change in the stack file changes in the graph: no more than it has to."""

from __future__ import annotations

from typing import Any

import pytest

from cli.program.values import reveal
from tests import stacks
from tests.graph.diff import Diff
from tests.graph.objects import changed
from tests.recordings import record
from tests.stacks import with_change

WAITS = {"slurm-configuration-active"}
FILES_AND_JOB = {"slurm-configuration-files", *WAITS}
"""What changes with any of Slurm's files: they, and the Job that waits until slurmctld has them."""

USERS = {"slurm-users-job", "slurm-users-list"}
OF_THE_JAIL = {"slurm-images-job", "slurm-jail-populate", *USERS}
POLICY = {"slurm-policy-document", "slurm-policy-job"}
POOL = {"size": 3, "resources": {"cpus": 8, "memory": "32Gi"}}


@pytest.mark.parametrize("size", [0, 1, 5, 400])
def test_scaling_changes_one_property_of_one_object(size: int) -> None:
    diff = Diff(stacks.existing(), changed(worker_nodes__cpu__size=size))
    assert diff.changed == {"slurm-pool-cpu-pods": ["spec.replicas"]}
    assert not {*diff.added, *diff.removed, *diff.replaced}


@pytest.mark.parametrize(
    ("path", "value", "expected", "replaced"),
    [
        # Slurm's files are changed in place: no pod is touched, and a Job waits until Slurm has taken them.
        ("slurm.settings.DefMemPerCPU", 600, FILES_AND_JOB, WAITS),
        # slurmctld learns of a user with its configuration.
        ("users.bob", {"uid": 10002}, FILES_AND_JOB | USERS | POLICY, WAITS | USERS | POLICY),
        ("users.alice.ssh_authorized_keys", [], USERS, USERS),
        # What runs in another jail's image, and no pod that leads into the jail.
        ("images.jail", {"packages": ["vim"]}, OF_THE_JAIL, OF_THE_JAIL),
        ("jail.storage_class", "other", {"slurm-jail-claim"}, {"slurm-jail-claim"}),
    ],
)
def test_a_change_reaches_what_reads_it_and_nothing_else(
    path: str, value: Any, expected: set[str], replaced: set[str]
) -> None:
    diff = Diff(stacks.existing(), with_change(stacks.existing(), path, value))
    assert (set(diff.changed), set(diff.replaced)) == (expected, replaced)
    assert not {*diff.added, *diff.removed}
    if "slurm-configuration-files" in expected and path.startswith("slurm."):
        assert diff.changed["slurm-configuration-files"] == ["data.slurm.conf"]


def test_pools_that_come_go_or_change_places_touch_no_other_pool() -> None:
    added = Diff(stacks.existing(), changed(worker_nodes__another=POOL))
    assert added.added == ["slurm-pool-another", "slurm-pool-another-pods"]
    without = stacks.existing()
    del without["worker_nodes"]["plain"]
    removed = Diff(stacks.existing(), without)
    assert removed.removed == ["slurm-pool-plain", "slurm-pool-plain-pods"]
    assert not {*added.removed, *removed.added}
    assert set(added.changed) == set(removed.changed) == FILES_AND_JOB
    reordered = changed(worker_nodes=dict(reversed(stacks.existing()["worker_nodes"].items())))
    assert set(Diff(stacks.existing(), reordered).changed) <= FILES_AND_JOB, "but the order of lines"


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
    other = [name for name in before if before[name][1] != after[name][1]]
    assert other
    assert other == [name for name in before if before[name][0] != after[name][0]]


def test_another_image_rolls_the_pods_but_replaces_neither_them_nor_data() -> None:
    diff = Diff(stacks.existing(), changed(images__tag="other"))
    assert set(diff.replaced) == {*WAITS, "slurm-images-job", "slurm-jail-populate", "slurm-policy-job", *USERS}
    assert {"slurm-controller-pods", "slurm-pool-cpu-pods"} <= diff.changed.keys()


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
