"""What a change of a stack file replaces or deletes, from two runs of the program or from Pulumi's state."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from cli.change.change import counts_of
from cli.change.effects import refused
from cli.change.engine_plan import EnginePlan, against_state
from config.sections.services import ImageRole
from tests import stacks
from tests.graph.state import compare_files, stack_of, state_of
from tests.recordings import record
from tests.stacks import with_change


def compare_state(directory: Path, before: dict[str, Any], after: dict[str, Any]) -> EnginePlan:
    old = stack_of(directory, before, "old")
    return against_state(stack_of(directory, after), state_of(record(old.sections, stack="test")))


WAYS = pytest.mark.parametrize("compared", [compare_files, compare_state])


@WAYS
def test_the_same_stack_is_no_change_though_state_keeps_its_secrets_to_itself(compared: Any, tmp_path: Path) -> None:
    found = compared(tmp_path, stacks.existing(), stacks.existing())
    assert not found.changes
    assert not found.effects


@WAYS
def test_another_storage_class_loses_the_jail_and_is_refused(compared: Any, tmp_path: Path) -> None:
    changed = with_change(stacks.existing(), "jail.storage_class", "other")
    (effect,) = compared(tmp_path, stacks.existing(), changed).effects
    assert (effect.action, effect.kind, effect.name) == ("replace", "PersistentVolumeClaim", "jail")
    assert effect.cost == "all users' files and the software in the jail are lost: the new one is empty"
    assert "spec.storageClassName can never change" in effect.refused
    assert "slurmstack:protect: false" in effect.refused
    (allowed,) = compared(tmp_path, stacks.existing(), {**changed, "protect": False}).effects
    assert not allowed.refused
    assert allowed.cost == effect.cost


@pytest.mark.parametrize("pinned", [False, True], ids=["by tag", "by digest"])
def test_another_release_of_slurm_is_refused(tmp_path: Path, *, pinned: bool) -> None:
    """A digest, as `images push --pin` writes it, does not tell which release it is of."""
    old, new = (
        with_change(stacks.existing(), "images.digests", dict.fromkeys(get_args(ImageRole), f"sha256:{number * 64}"))
        if pinned
        else stacks.existing()
        for number in "12"
    )
    found = compare_files(tmp_path, old, with_change(new, "slurm.version", "26.05"))
    (effect,) = refused(found.effects)
    assert effect.refused.startswith("slurm.version: the jail was filled with Slurm 24.11, and daemons of 26.05")


def test_another_release_with_the_digests_of_before_is_refused(tmp_path: Path) -> None:
    """It would be noted as the new one, and a new root be filled from the old one's image."""
    digests = dict.fromkeys(get_args(ImageRole), f"sha256:{'1' * 64}")
    pinned = with_change(stacks.existing(), "images.digests", digests)
    new = with_change(with_change(pinned, "slurm.version", "26.05"), "jail.root", "slurm-26.05")
    (effect,) = refused(compare_files(tmp_path, pinned, new).effects)
    assert effect.refused.startswith("images.digests: they are those of Slurm 24.11, and slurm.version is 26.05")


def test_a_pool_that_leaves_is_explained_and_not_refused(tmp_path: Path) -> None:
    without = stacks.existing()
    without["partitions"]["main"]["pools"] = ["gpu"]
    del without["worker_nodes"]["cpu"]
    (effect,) = compare_files(tmp_path, stacks.existing(), without).effects
    assert (effect.action, effect.kind, effect.name, effect.refused) == ("delete", "StatefulSet", "cpu", "")
    assert effect.cost.startswith("pool 'cpu' leaves: its 4 nodes take no more jobs")


@WAYS
def test_another_namespace_would_be_another_cluster_and_is_refused(compared: Any, tmp_path: Path) -> None:
    found = compared(tmp_path, stacks.existing(), with_change(stacks.existing(), "cluster.namespace", "other"))
    those = {(effect.kind, effect.name) for effect in refused(found.effects)}
    assert {("Namespace", "slurm"), ("PersistentVolumeClaim", "jail")} <= those
    assert all(effect.action == "delete" for effect in refused(found.effects))


def test_a_stack_that_was_never_applied_is_all_new(tmp_path: Path) -> None:
    found = against_state(stack_of(tmp_path, stacks.existing()), {"version": 3, "deployment": None})
    assert set(counts_of(found.changes)) == {"create"}
    assert not found.effects
