"""What a stack costs: which parts are counted, how often, and by which price."""

from __future__ import annotations

from typing import Any

from cli.cost.parts import Cost, Part, cost_of
from cli.cost.present import as_data, line
from config import load_config
from tests import stacks
from tests.stacks import with_change
from tests.unit.cli.nebius_stack import NEBIUS

H100 = "gpu-h100-sxm/8gpu-128vcpu-1600gb"
TABLE = {
    "machines": {H100: 20, "cpu-d3/16vcpu-64gb": 0.4, "cpu-d3/8vcpu-32gb": 0.2},
    "storage": {"filesystem/NETWORK_SSD": 0.08, "disk/NETWORK_SSD": 0.073},
}


def cost(sections: dict[str, Any], **prices: Any) -> Cost:
    found = cost_of(load_config(with_change(sections, "prices", prices)))
    assert found is not None
    return found


def part(found: Cost, name: str) -> Part:
    (only,) = (item for item in found.parts if item.name == name)
    return only


def test_machines_of_every_role_are_counted_at_their_least_and_most_with_their_disks() -> None:
    found = cost(NEBIUS, **TABLE)
    counts = {item.name: (item.least, item.most, item.key) for item in found.parts}
    assert counts == {
        "system": (1, 3, "machines.cpu-d3/16vcpu-64gb"),
        "system boot disk 128 GiB": (1, 3, "storage.disk/NETWORK_SSD"),
        "controller": (1, 1, "machines.cpu-d3/8vcpu-32gb"),
        "controller boot disk 128 GiB": (1, 1, "storage.disk/NETWORK_SSD"),
        "login": (1, 2, "machines.cpu-d3/16vcpu-64gb"),
        "login boot disk 128 GiB": (1, 2, "storage.disk/NETWORK_SSD"),
        "default": (2, 2, f"machines.{H100}"),
        "default boot disk 128 GiB": (2, 2, "storage.disk/NETWORK_SSD"),
        "jail 2,048 GiB": (1, 1, "storage.filesystem/NETWORK_SSD"),
        "controller 10 GiB": (1, 1, "storage.disk/NETWORK_SSD"),
        "accounting.database 10 GiB": (1, 1, "storage.disk/NETWORK_SSD"),
    }
    assert not found.without_price
    disk = 0.073 / 730  # of one GiB an hour
    least = 2 * 20 + 2 * 0.4 + 0.2 + (5 * 128 + 20) * disk + 2048 * 0.08 / 730
    assert abs(found.least - least) < 1e-9
    assert abs(found.most - (least + 3 * (0.4 + 128 * disk))) < 1e-9


def test_a_pool_s_own_price_wins_and_preemptible_machines_are_of_a_kind_of_their_own() -> None:
    assert part(cost(NEBIUS, **TABLE, pools={"default": 11}), "default").price == 11
    preemptible = with_change(NEBIUS, "worker_nodes.default.preemptible", True)
    assert part(cost(preemptible, **TABLE), "default").price is None, "never by the price of others"
    table = {**TABLE, "machines": {**TABLE["machines"], f"{H100}/preemptible": 8}}
    assert part(cost(preemptible, **table), "default").price == 8


def test_a_file_system_that_is_there_already_costs_the_stack_nothing() -> None:
    sections = with_change(NEBIUS, "jail.filesystem", {"id": "computefilesystem-e00a"})
    assert [item.key for item in cost(sections, **TABLE).parts if "filesystem" in item.key] == []


def test_on_somebody_s_cluster_nodes_volumes_and_load_balancers_are_counted() -> None:
    sections = with_change(stacks.existing_full(), "worker_nodes.gpu.size", {"min": 1, "max": 64})
    sections = with_change(sections, "worker_nodes.gpu.scratch", {"size": "730Gi", "storage_class": "fast"})
    sections = with_change(sections, "rest.service_type", "LoadBalancer")
    sections = with_change(sections, "jail.homes", {"size": "2Ti"})
    storage = {"shared": 0.73, "default": 0.073, "fast": 1}
    found = cost(sections, pools={"cpu": 0.5, "gpu": 28}, storage=storage, load_balancer=0.02, other={"logs": 3})
    assert [(item.name, item.least, item.most, round(item.price or 0, 9)) for item in found.parts] == [
        ("cpu", 4, 4, 0.5),
        ("gpu", 1, 64, 28),
        ("jail 1,024 GiB", 1, 1, 1.024),
        ("jail.homes 2,048 GiB", 1, 1, 0.2048),
        ("controller 10 GiB", 1, 1, 0.001),
        ("accounting.database 10 GiB", 1, 1, 0.001),
        ("gpu scratch 730 GiB", 1, 64, 1),
        ("login load balancer", 1, 1, 0.02),
        ("rest load balancer", 1, 1, 0.02),
        ("logs", 1, 1, 3),
    ]
    assert not found.without_price, "the pool without nodes needs none"
    assert round(found.least, 9) == 35.2708
    assert round(found.most, 9) == 1862.2708, "63 times 28 and 1 more"


def test_what_has_no_price_is_named_once_with_its_parts_and_is_in_no_sum() -> None:
    found = cost(stacks.existing(), pools={"gpu": 0.1})
    assert found.without_price == {
        "pools.cpu": ["cpu"],
        "storage.shared": ["jail 1,024 GiB"],
        "storage.default": ["controller 10 GiB", "accounting.database 10 GiB"],
        "load_balancer": ["login load balancer"],
    }
    assert (found.least, found.most) == (0.2, 0.2)


def test_scripts_get_sums_that_are_rounded_only_at_the_end() -> None:
    sections = with_change(stacks.existing(), "worker_nodes.gpu.size", {"min": 0, "max": 3})
    data = as_data(cost(sections, currency="EUR", pools={"gpu": 0.1}, storage={"shared": 0.1}))
    assert data["hour"] == {"min": 0.140274, "max": 0.440274}
    assert data["month"] == {"min": 102.4, "max": 321.4}, "not 730 times the rounded hour"
    assert (data["currency"], data["complete"]) == ("EUR", False)
    assert list(data["without_price"]) == ["pools.cpu", "storage.default", "load_balancer"]
    cpu, gpu = data["parts"][:2]
    assert (cpu["name"], cpu["price_hour"], cpu["hour_max"]) == ("cpu", None, None)
    assert gpu == {
        "name": "gpu",
        "price_key": "pools.gpu",
        "min": 0,
        "min_average": 0,
        "max": 3,
        "price_hour": 0.1,
        "hour_min": 0.0,
        "hour_max": 0.3,
    }


WINDOWS = [{"days": "mon-fri", "hours": "08:00-20:00", "min": 7}, {"days": "sun", "max": 1}]
"""60 of 168 hours."""


def test_hours_of_windows_are_counted_on_average_over_a_week() -> None:
    sections = with_change(stacks.existing(), "worker_nodes.gpu.size", {"min": 0, "max": 14})
    sections = with_change(sections, "worker_nodes.gpu.windows", WINDOWS)
    found = cost(sections, pools={"gpu": 2})
    assert (found.least, found.usual, found.most) == (0, 5, 28)
    assert found.weeks == ("nodes of gpu at least, in a week: 7 for 60 hours, 0 for 108 hours",)
    assert as_data(found)["month"] == {"min": 3650, "max": 20440}
    assert line(found).startswith("costs at least 0.00 to 28.00 USD an hour, 5.00 on average over a week at least (no")


def test_where_the_cloud_makes_machines_a_fabric_s_own_one_is_there_outside_of_windows_too() -> None:
    sections = with_change(NEBIUS, "worker_nodes.default.size", {"min": 0, "max": 14})
    sections = with_change(sections, "worker_nodes.default.windows", WINDOWS)
    sections = with_change(sections, "topology", {"plugin": "none"})
    machines = part(cost(sections, **TABLE), "default")
    assert (machines.least, machines.usual, machines.most) == (1, (7 * 60 + 108) / 168, 14)


def test_without_prices_there_is_no_cost() -> None:
    assert cost_of(load_config(stacks.existing())) is None
