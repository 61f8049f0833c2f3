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
