"""`resources.gpus`: a number, or a map that says whose GPUs they are and how they are divided."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import pytest

from config import load_config
from config.sections.gpus import Gpus, has_room
from slurm.conf import render, tracked_resources
from slurm.gpus import extended_resources
from slurm.sizing import node_conf
from tests import stacks
from tests.stacks import with_change
from tests.unit.config.messages import complaints, minimum, only_complaint, policy_complaint

GPUS = "worker_nodes.gpu.resources.gpus"


def with_gpus(gpus: Any, **pool: Any) -> dict[str, Any]:
    """The stack on somebody's cluster with these GPUs in the pool that has some."""
    sections = with_change(stacks.existing(), GPUS, gpus)
    for key, value in pool.items():
        sections = with_change(sections, f"worker_nodes.gpu.{key}", value)
    return sections


def offered(gpus: Any, **pool: Any) -> tuple[str, dict[str, str]]:
    """What a node says to Slurm that it has, and what its pod asks Kubernetes for."""
    found = load_config(with_gpus(gpus, **pool)).worker_nodes["gpu"]
    return node_conf("gpu", found).partition(" Gres=")[2], extended_resources(found.resources.gpus)


def test_a_number_is_the_count_of_nvidia_s() -> None:
    assert load_config(stacks.existing()).worker_nodes["gpu"].resources.gpus == Gpus(count=8)
    assert load_config(stacks.existing()).worker_nodes["cpu"].resources.gpus == Gpus(count=0)
    assert offered({"count": 8}) == offered(8) == ("gpu:8", {"nvidia.com/gpu": "8"})
    assert offered(0) == ("", {})


@pytest.mark.parametrize(
    ("gpus", "gres", "resources"),
    [
        ({"count": 8, "type": "h100"}, "gpu:h100:8", {"nvidia.com/gpu": "8"}),
        ({"count": 8, "shard": 32}, "gpu:8,shard:32", {"nvidia.com/gpu": "8"}),
        ({"count": 2, "type": "l40s", "shard": 2}, "gpu:l40s:2,shard:2", {"nvidia.com/gpu": "2"}),
        ({"count": 8, "vendor": "amd"}, "gpu:8", {"amd.com/gpu": "8"}),
        ({"count": 8, "vendor": "amd", "type": "mi300x", "shard": 16}, "gpu:mi300x:8,shard:16", {"amd.com/gpu": "8"}),
    ],
)
def test_slurm_and_kubernetes_are_told_the_same(gpus: Any, gres: str, resources: dict[str, str]) -> None:
    assert offered(gpus) == (gres, resources)


def test_parts_of_gpus_are_asked_for_by_their_profiles() -> None:
    gpus = {"count": 2, "mig": {"3g.40gb": 2, "1g.10gb": 4, "1g.10gb+me": 1}}
    assert offered(gpus, confinement="required") == (
        "gpu:1g.10gb:4,gpu:1g.10gb.me:1,gpu:3g.40gb:2",
        {"nvidia.com/mig-1g.10gb": "4", "nvidia.com/mig-1g.10gb.me": "1", "nvidia.com/mig-3g.40gb": "2"},
    )


@pytest.mark.parametrize(
    ("gpus", "told"),
    [
        ("eight", ": 'eight' is neither a number of GPUs nor a map with their count"),
        (True, ": true is neither a number of GPUs nor a map with their count"),
        (65, ": 65 is no number of GPUs of one node: 0 to 64"),
        ({"vendor": "amd"}, ".count: is required but not set"),
        ({"count": 8, "vendor": "intel"}, ".vendor: 'intel' is not one of the allowed values"),
        ({"count": 8, "type": "H100"}, ".type: 'H100' is not a type of GPU: small letters"),
        ({"count": 8, "mig": {"1g10gb": 7}}, ".mig.1g10gb: '1g10gb' is not a MIG profile such as 1g.10gb"),
        ({"count": 8, "mig": {"8g.80gb": 1}}, ".mig.8g.80gb: '8g.80gb' is not a MIG profile"),
        ({"count": 0, "shard": 4}, ": has shard, and a count of 0; say how many GPUs a node has"),
        ({"count": 8, "shard": 12}, ": has shard: 12, which 8 GPUs cannot share evenly; take a multiple of 8"),
        ({"count": 8, "shard": 4}, ": has shard: 4, which 8 GPUs cannot share evenly; take a multiple of 8"),
        ({"count": 8, "mig": {"1g.10gb": 7}, "shard": 8}, ": has mig and shard; both divide the same GPUs"),
        ({"count": 8, "mig": {"1g.10gb": 7}, "vendor": "amd"}, ": has mig, which only NVIDIA's GPUs know"),
        ({"count": 8, "mig": {"1g.10gb": 7}, "type": "h100"}, ": has mig and type; the profiles are the types"),
        ({"count": 0, "job_files": True}, ": has job_files, and a count of 0"),
        ({"count": 8, "job_files": True, "vendor": "amd"}, ": has job_files, which are for exporters of NVIDIA's"),
        ({"count": 1, "mig": {"3g.40gb": 2, "2g.20gb": 1}}, ": has mig with 8 sevenths of a GPU's cores, and 1 GPUs"),
    ],
)
def test_what_cannot_be_is_told_in_one_message(gpus: Any, told: str) -> None:
    (complaint,) = complaints(with_gpus(gpus, confinement="required"))
    assert complaint.startswith(f"{GPUS}{told}")


NO_ROOM = ": has mig that {} GPUs have no room for: of one GPU there is at most one instance of 4g or more, two of 3g"


@pytest.mark.parametrize(
    ("count", "mig", "fits"),
    [
        (2, {"2g.20gb": 7}, False),
        (3, {"2g.20gb": 7}, True),
        (3, {"4g.40gb": 3}, True),
        (2, {"4g.40gb": 3}, False),
        (2, {"7g.80gb": 1, "4g.40gb": 1, "3g.40gb": 1}, True),
        (2, {"7g.80gb": 1, "3g.40gb": 2, "1g.10gb": 1}, False),
        (1, {"3g.40gb": 2}, True),
        (1, {"3g.40gb": 2, "1g.10gb": 1}, False),  # two of 3g have all of the memory
        (2, {"3g.40gb": 2, "2g.20gb": 4}, True),  # one of 3g in each
        (2, {"3g.40gb": 2, "1g.10gb": 8}, True),
        (2, {"3g.40gb": 3, "2g.20gb": 2}, True),
        (2, {"3g.40gb": 3, "2g.20gb": 2, "1g.10gb": 1}, False),
        (2, {"3g.40gb": 3, "1g.10gb": 5}, False),
        (2, {"4g.40gb": 2, "2g.20gb": 3}, False),
        (2, {"4g.40gb": 2, "2g.20gb": 2, "1g.10gb": 2}, True),
        (2, {"4g.40gb": 1, "3g.40gb": 1, "2g.20gb": 3, "1g.10gb": 1}, True),
        (8, {"1g.10gb": 32, "3g.40gb": 8}, True),
        (8, {"1g.10gb": 55, "1g.10gb+me": 1}, True),
    ],
)
def test_parts_have_to_fit_into_single_gpus(count: int, mig: dict[str, int], fits: bool) -> None:
    sections = with_gpus({"count": count, "mig": mig}, confinement="required")
    if fits:
        load_config(sections)
    else:
        (told,) = complaints(sections)
        assert told.startswith(GPUS + NO_ROOM.format(count))


def test_room_is_what_nvidia_s_places_for_parts_leave() -> None:
    """Against all ways to divide one or two GPUs of eight parts of memory."""
    places = {1: (1, range(7)), 2: (2, (0, 2, 4)), 3: (4, (0, 4)), 4: (4, (0,)), 7: (8, (0,))}

    @cache
    def divisions(held: frozenset[int] = frozenset(), cores: int = 7) -> set[tuple[int, ...]]:
        found: set[tuple[int, ...]] = {()}
        for size, (memory, starts) in places.items():
            for start in starts:
                taken = frozenset(range(start, start + memory))
                if size <= cores and not taken & held:
                    found |= {tuple(sorted((size, *rest))) for rest in divisions(held | taken, cores - size)}
        return found

    one = divisions()
    two = {tuple(sorted((*left, *right))) for left in one for right in one}
    for count, possible in ((1, one), (2, two)):
        for counts in itertools.product(range(15), range(8), range(5), range(3), range(3)):
            sizes = dict(zip((1, 2, 3, 4, 7), counts, strict=True))
            asked = tuple(size for size, number in sizes.items() for _ in range(number))
            assert has_room(sizes, count) == (asked in possible), (count, sizes)


@pytest.mark.parametrize(
    ("pool", "fits"),
    [
        ({"confinement": "required"}, False),
        ({"confinement": "auto"}, True),
        ({"confinement": "required", "resources": {"cpus": 4, "memory": "8Gi"}}, True),
    ],
)
def test_devices_are_not_held_in_a_user_namespace(pool: dict[str, Any], fits: bool) -> None:
    sections = {**with_gpus(1, **pool), "cluster": {"user_namespaces": True}}
    if fits:
        load_config(sections)
    else:
        (told,) = complaints(sections)
        assert told.startswith("worker_nodes.gpu.confinement: is required, and so is cluster.user_namespaces")


@pytest.mark.parametrize("pool", [{}, {"confinement": "off"}, {"security": "baseline"}])
def test_parts_of_gpus_need_jobs_that_are_held_to_theirs(pool: dict[str, str]) -> None:
    (complaint,) = complaints(with_gpus({"count": 1, "mig": {"1g.10gb": 7}}, **pool))
    assert complaint.startswith("worker_nodes.gpu: has resources.gpus.mig and confinement: ")
    assert complaint.endswith("Set confinement: required")


def test_files_on_the_machine_take_a_pod_that_may_have_some_and_a_prolog() -> None:
    shown = {"count": 8, "job_files": True}
    assert load_config(with_gpus(shown)).worker_nodes["gpu"].resources.gpus.job_files
    (told,) = complaints(with_gpus(shown, security="baseline"))
    assert told.startswith("worker_nodes.gpu: has resources.gpus.job_files and security: baseline")
    (told,) = complaints({**with_gpus(shown), "health": {"enabled": False}})
    assert told.startswith("worker_nodes.gpu.resources.gpus.job_files: is true, and health.enabled is false")


def test_shares_are_known_to_slurm_only_where_there_are_some() -> None:
    with_shares, without = load_config(with_gpus({"count": 8, "shard": 32})), load_config(stacks.existing())
    assert "\nGresTypes=gpu,shard\n" in render(with_shares)["slurm.conf"]
    assert "\nGresTypes=gpu\n" in render(without)["slurm.conf"]
    assert tracked_resources(with_shares) == ["gres/gpu", "gres/shard"]
    assert tracked_resources(without) == ["gres/gpu"]


@pytest.mark.parametrize(("gpus", "way"), [({"count": 8, "vendor": "amd"}, "off"), (8, "nvidia")])
def test_slurm_looks_for_devices_of_nvidia_only(gpus: Any, way: str) -> None:
    assert f"\nAutoDetect={way}\n" in render(load_config(with_gpus(gpus)))["gres.conf"]


def test_limits_of_shares_and_types_name_what_there_is() -> None:
    def told(resource: str, gpus: Any) -> str:
        return policy_complaint(**with_gpus(gpus), accounts={"a": {"grp_tres": {resource: 1}}})

    typed = {"count": 8, "type": "h100"}
    where = "accounts.a.grp_tres: names"
    assert told("gres/shard", typed).startswith(f"{where} 'gres/shard', and no pool has shares of GPUs")
    assert told("gres/gpu:h200", typed).startswith(f"{where} 'gres/gpu:h200': 'h200' is not a type of GPU of any pool")
    for gpus, resource in (({**typed, "shard": 8}, "gres/shard"), (typed, "gres/gpu:h100"), (8, "gres/gpu:h200")):
        config = load_config({**with_gpus(gpus), "accounts": {"a": {"grp_tres": {resource: 1}}}})
        assert resource in tracked_resources(config)


def test_a_list_of_recorded_resources_that_lacks_shares_is_refused() -> None:
    sections = {**with_gpus({"count": 8, "shard": 8}), "slurm": {"settings": {"AccountingStorageTRES": "gres/gpu"}}}
    (complaint,) = complaints(sections)
    assert "has the key 'AccountingStorageTRES' without gres/shard" in complaint


def test_tests_of_nvidia_s_gpus_are_refused_beside_those_of_amd() -> None:
    sections = {**with_gpus({"count": 8, "vendor": "amd"}), "health": {"tests": {"enabled": True}}}
    (complaint,) = complaints(sections)
    assert complaint.startswith("health.tests.run: has nccl-node, nccl-pair, dcgm-r1, dcgm-r2, which need NVIDIA's")
    load_config({**sections, "health": {"tests": {"enabled": True, "run": ["cpu-speed"]}}})


def test_the_preset_counts_the_gpus_that_a_map_does_not() -> None:
    pool = load_config(minimum(("worker_nodes.default.resources", {"gpus": {"shard": 16}}))).worker_nodes["default"]
    assert pool.resources.gpus == Gpus(count=8, shard=16)
    assert pool.gpu_types == ("h100",)


def test_the_cloud_has_no_gpus_of_amd() -> None:
    told = only_complaint(("worker_nodes.default.resources", {"gpus": {"vendor": "amd"}}))
    assert (
        told == "worker_nodes.default.resources.gpus.vendor: is amd, and this cloud's GPUs are NVIDIA's; leave it out"
    )


def test_the_cloud_divides_gpus_only_with_nvidia_s_operators() -> None:
    resources = ("worker_nodes.default.resources", {"gpus": {"mig": {"1g.10gb": 56}}})
    confined = ("worker_nodes.default.confinement", "required")
    told = only_complaint(resources, confined)
    assert told.startswith("worker_nodes.default.resources.gpus.mig: needs cloud.gpu_stack: operators")
    load_config(minimum(resources, confined, ("cloud.gpu_stack", "operators")))
