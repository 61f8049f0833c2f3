"""Pools that follow the queue: how their size is written, and what does not go with them."""

from __future__ import annotations

from typing import Any

import pytest

from config import load_config
from tests.stacks import dev, with_change
from tests.unit.config.messages import complaints

WRONG = {
    "no size": ("x", "worker_nodes.default.size: 'x' is not a whole number: write a number, or {min: 1, max: 5}"),
    "a switch": (True, "worker_nodes.default.size: true is not a whole number"),
    "a text": ("3", "worker_nodes.default.size: '3' is not a whole number: write it without quotes"),
    "less than none": (-1, "worker_nodes.default.size: -1 is not allowed: input should be greater than or equal to 0"),
    "too many": ({"max": 5001}, "worker_nodes.default.size.max: 5001 is not allowed: input should be less than"),
    "no max": ({"min": 1}, "worker_nodes.default.size.max: is required but not set"),
    "more than max": ({"min": 3, "max": 2}, "worker_nodes.default.size: has min 3, which is more than its max, 2"),
    "a slip": ({"mni": 1, "max": 2}, "worker_nodes.default.size.mni: 'mni' is not a known key (valid: max, min); did"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_size_is_told_as_it_was_written(name: str) -> None:
    size, said = WRONG[name]
    (told,) = complaints(with_change(dev(), "worker_nodes.default.size", size))
    assert told.startswith(said)


def elastic(**more: Any) -> dict[str, Any]:
    sections = with_change(dev(), "worker_nodes.default.size", {"min": 1, "max": 64})
    for key, value in more.items():
        sections = with_change(sections, f"worker_nodes.default.{key}", value)
    return sections


def test_a_range_and_a_number_say_how_many_nodes_there_are() -> None:
    pool = load_config(elastic(idle_timeout="10m")).worker_nodes["default"]
    assert (pool.is_elastic, pool.least, pool.most) == (True, 1, 64)
    fixed = load_config(dev()).worker_nodes["default"]
    assert (fixed.is_elastic, fixed.least, fixed.most) == (False, 2, 2)


@pytest.mark.parametrize("value", ["10", 600, "1.5h", "0s", "5s", "31d", "10 m", ""])
def test_what_is_no_idle_time_is_refused(value: object) -> None:
    (told,) = complaints(elastic(idle_timeout=value))
    assert told.startswith("worker_nodes.default.idle_timeout: ")


def test_times_of_an_elastic_pool_are_refused_for_a_fixed_one() -> None:
    (told,) = complaints(with_change(dev(), "worker_nodes.default.idle_timeout", "10m"))
    assert "has idle_timeout, which is for elastic pools; write size: {min: 0, max: 2}" in told
    empty = with_change(dev(), "worker_nodes.default.size", 0)
    (told,) = complaints(with_change(empty, "worker_nodes.default.idle_timeout", "10m"))
    assert "write size: {min: 0, max: 1}" in told, "no other would be taken"


BESIDE = {
    "partitions.main.settings": (
        {"SuspendTime": 60},
        "is what starts and ends the nodes of the elastic pool 'default'",
    ),
    "slurm.settings.SuspendExcStates": ("DOWN", "is what starts and ends the nodes of the elastic pool 'default'"),
    "slurm.settings.TopologyPlugin": ("topology/block", "have no place while they are off; leave it out"),
    "slurm.settings.PrologEpilogTimeout": (30, "is 30 s, and a job waits for its nodes in PrologSlurmctld for up to"),
    "slurm.settings.SlurmctldParameters": ("enable_configless,idle_on_node_suspend", "has idle_on_node_suspend"),
}


@pytest.mark.parametrize("path", BESIDE)
def test_settings_that_do_not_go_with_elastic_pools_are_refused(path: str) -> None:
    value, said = BESIDE[path]
    (told,) = complaints(with_change(elastic(), path, value))
    assert said in told
    load_config(with_change(dev(), path, value))


def test_preemptible_is_for_elastic_pools_where_the_machines_are_somebody_else_s() -> None:
    assert load_config(elastic(preemptible=True)).worker_nodes["default"].gives_back
    assert not load_config(elastic()).worker_nodes["default"].gives_back
    (told,) = complaints(with_change(dev(), "worker_nodes.default.preemptible", True))
    assert told == (
        "worker_nodes.default.preemptible: does nothing for a pool of a fixed size; write size: {min: 0, max: 2}, or "
        "remove it"
    )


def test_a_switch_tree_goes_with_an_elastic_pool() -> None:
    load_config(with_change(elastic(), "topology.plugin", "tree"))
    load_config(with_change(elastic(), "slurm.settings.TopologyPlugin", "topology/tree"))


def test_machines_are_kept_warm_for_elastic_pools_alone_and_no_more_than_there_are_nodes() -> None:
    assert load_config(elastic(warm_machines=64)).worker_nodes["default"].warm_machines == 64
    assert load_config(elastic()).worker_nodes["default"].warm_machines == 0
    (told,) = complaints(elastic(warm_machines=65))
    assert told.startswith("worker_nodes.default: has warm_machines: 65, and no more than 64 nodes ever run")
    (told,) = complaints(elastic(warm_machines=-1))
    assert told.startswith("worker_nodes.default.warm_machines: ")
    (told,) = complaints(with_change(dev(), "worker_nodes.default.warm_machines", 1))
    assert "has warm_machines, which is for elastic pools; write size: {min: 0, max: 2}" in told


@pytest.mark.parametrize("path", ["cluster.priority_class", "worker_nodes.default.priority_class"])
def test_a_priority_class_has_a_name_that_kubernetes_takes(path: str) -> None:
    load_config(with_change(dev(), path, "high.example-1"))
    (told,) = complaints(with_change(dev(), path, "High prio"))
    assert told.startswith(f"{path}: 'High prio' is not the name of a PriorityClass")


REFUSED = {
    "a program of Slurm's power saving": ("slurm.settings.ResumeProgram", "/bin/true", "slurm.settings.resumeprogram"),
    "the name of its partition": ("partitions.elastic-default", {"pools": ["default"]}, "partitions.elastic-default"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_go_with_an_elastic_pool_is_refused_and_goes_without_one(name: str) -> None:
    path, value, where = REFUSED[name]
    (told,) = complaints(with_change(elastic(), path, value))
    assert told.startswith(f"{where}: ")
    load_config(with_change(dev(), path, value))
