"""Volumes and machines in a stack file, on any cloud: paths that hide each other, keys that would have no effect."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config import load_config
from config.sections.machines import Machines
from tests import stacks
from tests.stacks import with_change
from tests.unit.config.messages import complaints, minimum

EVERY_MACHINE_KEY: dict[str, Any] = {
    "platform": "gpu-h100-sxm",
    "preset": "8gpu-128vcpu-1600gb",
    "gpu_cluster": {"infiniband_fabric": "fabric-6"},
    "boot_disk": {"size": "128Gi"},
    "reservation": {"policy": "AUTO"},
    "local_disks": {"use": "ephemeral"},
    "autoscaling": {"max_size": 10},
    "max_pods": 32,
    "labels": {"a": "b"},
    "taints": [{"key": "a", "value": "b"}],
    "drivers_preset": "cuda13.0",
    "update_strategy": {"max_unavailable": 1},
    "allow_replacement": False,
}
PATHS = st.lists(st.sampled_from(["data", "data2", "home", "x"]), min_size=1, max_size=3).map("/".join)


def test_every_key_of_machines_is_tried_but_the_one_that_elastic_pools_have_on_every_cloud() -> None:
    assert EVERY_MACHINE_KEY.keys() == Machines.model_fields.keys() - {"preemptible"}


@pytest.mark.parametrize("key", EVERY_MACHINE_KEY)
@pytest.mark.parametrize("sections", [stacks.dev(), stacks.existing()], ids=["local", "existing"])
def test_a_machine_cannot_be_chosen_where_somebody_else_made_it(sections: dict[str, Any], key: str) -> None:
    pool = next(iter(sections["worker_nodes"]))
    (complaint,) = complaints(with_change(sections, f"worker_nodes.{pool}.{key}", EVERY_MACHINE_KEY[key]))
    assert complaint == (
        f"worker_nodes.{pool}.{key}: has no effect on a cluster that is already there, only with cloud.kind nebius; "
        "remove it (node_selector and tolerations choose machines)"
    )


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("jail", {"filesystem": {"id": "computefilesystem-a"}}),
        ("jail.homes", {"filesystem": {}}),
        ("controller", {"filesystem": {}}),
        ("accounting.database", {"filesystem": {}}),
    ],
)
def test_a_file_system_cannot_be_chosen_where_there_is_only_a_storage_class(path: str, value: Any) -> None:
    (complaint,) = complaints(with_change(stacks.existing(), path, value))
    assert complaint.startswith(f"{path}.filesystem: has no effect on a cluster that is already there")
    (complaint,) = complaints(with_change(stacks.existing(), "mounts.data", {"path": "/data", **value}))
    assert complaint.startswith("mounts.data.filesystem: has no effect on a cluster that is already there")


def test_a_stack_without_a_cloud_is_the_local_cluster_and_is_checked_like_it() -> None:
    sections = with_change(stacks.dev(), "worker_nodes.default.platform", "cpu-d3")
    del sections["cloud"]
    assert complaints(sections)[0].startswith("worker_nodes.default.platform: has no effect")


@pytest.mark.parametrize("sections", [stacks.existing(), minimum()], ids=["existing", "nebius"])
@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (("/data", "/data"), "mounts.b.path: /data is the path of the mount 'a' already"),
        (("/data/set", "/data"), "mounts.a.path: /data/set is inside /data, the path of the mount 'b'"),
        (("/home", "/home/alice/x"), "mounts.b.path: /home/alice/x is inside /home, the path of the mount 'a'"),
        (("/data", "/data2"), None),
    ],
)
def test_mounts_do_not_hide_each_other(sections: dict[str, Any], paths: tuple[str, str], expected: str | None) -> None:
    changed = with_change(sections, "mounts", {"a": {"path": paths[0]}, "b": {"path": paths[1]}})
    if expected is None:
        assert len(load_config(changed).mounts) == 2
    else:
        (complaint,) = complaints(changed)
        assert complaint.startswith(expected)


@pytest.mark.parametrize(("path", "refused"), [("/home", True), ("/homes", False), ("/home/shared", False)])
def test_no_mount_is_where_homes_have_a_volume_of_their_own(path: str, refused: bool) -> None:
    changed = with_change(with_change(stacks.existing(), "mounts", {"a": {"path": path}}), "jail.homes", {})
    if refused:
        assert complaints(changed) == ["mounts.a.path: /home is the path of jail.homes; remove one of the two"]
    else:
        assert load_config(changed).jail.homes is not None


@given(st.lists(PATHS.map("/{}".format), min_size=1, max_size=4))
def test_mounts_are_accepted_exactly_if_no_path_is_in_another(paths: list[str]) -> None:
    sections = with_change(
        stacks.existing(), "mounts", {f"m{number}": {"path": path} for number, path in enumerate(paths)}
    )
    parsed = [PurePosixPath(path) for path in paths]
    hidden = any(
        parsed[one].is_relative_to(parsed[two])
        for one in range(len(parsed))
        for two in range(len(parsed))
        if one != two
    )
    if hidden:
        assert all(line.startswith("mounts.m") for line in complaints(sections))
    else:
        assert len(load_config(sections).mounts) == len(paths)


@pytest.mark.parametrize(
    "path", ["data", "/", "/data/", "//data", "/etc/x", "/usr", "/tmp/a", "/data/../etc", "/a b", ""]
)
def test_a_mount_has_a_plain_path_outside_of_the_system(path: str) -> None:
    (complaint,) = complaints(with_change(stacks.existing(), "mounts.data", {"path": path}))
    assert complaint.startswith("mounts.data.path: ")


@pytest.mark.parametrize(
    "path",
    [
        "jail.size",
        "mounts.data.size",
        "controller.storage",
        "accounting.database.storage",
        "login.tmp",
        "worker_nodes.cpu.tmp",
    ],
)
def test_a_volume_that_nothing_fits_into_is_refused(path: str) -> None:
    sections = with_change(stacks.existing(), "mounts", {"data": {"path": "/data"}})
    load_config(with_change(sections, path, "100Mi"))
    (complaint,) = complaints(with_change(sections, path, "1k"))
    assert complaint == f"{path}: '1k' is too little for what is kept there; 100Mi at least"


@pytest.mark.parametrize("sections", [stacks.existing(), minimum()], ids=["existing", "nebius"])
def test_shared_memory_is_part_of_the_memory(sections: dict[str, Any]) -> None:
    pool = next(iter(sections["worker_nodes"]))
    (complaint,) = complaints(with_change(sections, f"worker_nodes.{pool}.shared_memory", "2Ti"))
    assert complaint.startswith(f"worker_nodes.{pool}.shared_memory: 2Ti is more than the pod's memory of ")
