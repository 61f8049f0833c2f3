"""Named roots in the jail's volume: what mounts which, and that nothing changes without one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.program.recording import Recording
from cli.program.values import reveal
from components.kit.jail_volume import SHARED_DIRECTORY
from config.sections.storage import SHARED
from images.common import jail_roots
from slurm.names import JAIL_ROOT, JAIL_ROOTS
from tests import stacks
from tests.graph.diff import Diff
from tests.graph.state import compare_files
from tests.recordings import record
from tests.stacks import with_change

INSIDE = ".slurmstack-roots/blue/root"


def template(recording: Recording, name: str) -> dict[str, Any]:
    (found,) = [item for item in recording if item.name == name and item.custom]
    spec: dict[str, Any] = dict(reveal(found.inputs))["spec"]["template"]["spec"]
    return spec


def mounts(container: dict[str, Any]) -> dict[str, str]:
    """Path -> directory of the volume, of what the container has of the jail's volume."""
    return {
        mount["mountPath"]: mount.get("subPath", "") for mount in container["volumeMounts"] if mount["name"] == "jail"
    }


def environment(container: dict[str, Any]) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in container["env"] if "value" in variable}


def named(**more: Any) -> dict[str, Any]:
    stack = stacks.existing()
    stack["jail"] = {**stack.get("jail", {}), "root": "blue", **more}
    return stack


@pytest.fixture(scope="module")
def blue() -> Recording:
    return record(named(carry=["/opt", "/usr/local"], carry_from="green"), stack="prod")


@pytest.mark.parametrize("name", ["slurm-login-pods", "slurm-pool-cpu-pods"])
def test_pods_for_users_lead_into_the_root_and_share_homes(blue: Recording, name: str) -> None:
    container = template(blue, name)["containers"][0]
    assert mounts(container) == {"/jail": INSIDE, "/shared/home": "home", "/shared/srv": "srv"}
    assert environment(container)[JAIL_ROOT] == "blue"
    assert json.loads(environment(container)["MOUNTS"])[:2] == [
        {"path": "/home", "source": "/shared/home"},
        {"path": "/srv", "source": "/shared/srv"},
    ]


@pytest.mark.parametrize("name", ["slurm-jail-populate", "slurm-users-job"])
def test_what_fills_roots_and_writes_accounts_to_all_of_them_has_the_whole_volume(blue: Recording, name: str) -> None:
    container = template(blue, name)["containers"][0]
    assert mounts(container) == {"/jail": ""}
    assert environment(container)[JAIL_ROOT] == "blue"


def test_filling_is_told_the_release_and_what_to_carry(blue: Recording) -> None:
    told = environment(template(blue, "slurm-jail-populate")["containers"][0])
    assert (told["SLURM_RELEASE"], told["CARRY"], told["CARRY_FROM"]) == ("24.11", '["/opt", "/usr/local"]', "green")


def test_a_mount_at_a_shared_path_wins() -> None:
    recording = record({**named(), "mounts": {"homes": {"path": "/home", "storage_class": "x"}}}, stack="prod")
    shown = json.loads(environment(template(recording, "slurm-login-pods")["containers"][0])["MOUNTS"])
    assert [(item["path"], item["source"]) for item in shown] == [("/srv", "/shared/srv"), ("/home", "/mounts/homes")]


def test_another_root_rolls_what_leads_into_it_and_keeps_keys_claims_and_the_controller() -> None:
    diff = Diff(stacks.existing(), named())
    assert set(diff.replaced) == {"slurm-jail-populate", "slurm-users-job"}
    assert {"slurm-login-pods", "slurm-pool-cpu-pods"} <= set(diff.changed)
    assert not [name for name in diff.changed if "controller" in name or "accounting" in name]


def test_pods_without_the_jail_stay_as_they_are() -> None:
    stack = with_change(stacks.existing(), "worker_nodes.cpu.security", "baseline")
    diff = Diff(stack, {**stack, "jail": {**stack.get("jail", {}), "root": "blue"}})
    assert "slurm-pool-cpu-pods" not in diff.changed


def test_names_are_the_same_on_both_sides() -> None:
    assert (JAIL_ROOTS, SHARED) == (jail_roots.ROOTS, jail_roots.SHARED)
    assert SHARED_DIRECTORY not in {f"/{name}" for name in SHARED}


def refusals(tmp_path: Path, old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    return [item.refused for item in compare_files(tmp_path, old, new).effects if item.refused]


def test_another_release_of_slurm_needs_another_root(tmp_path: Path) -> None:
    old, newer = named(), with_change(named(), "slurm.version", "26.05")
    (same,) = refusals(tmp_path, old, newer)
    assert same.startswith("slurm.version: the root 'blue' was filled with Slurm 24.11, and daemons of 26.05 would not")
    assert same.endswith("jail: {root: slurm-26.05}")
    assert not refusals(tmp_path, old, with_change(newer, "jail.root", "green"))
    assert not refusals(tmp_path, stacks.existing(), newer), "from the first root to a named one"
    (back,) = refusals(tmp_path, newer, with_change(old, "jail.root", "green"))
    assert back.startswith("slurm.version: the cluster's state is that of Slurm 26.05")
