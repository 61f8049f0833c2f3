"""Pools of workers: elastic ones with their windows, and scratch."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from config import load_config
from config.sections.workers import WorkerPool
from slurm.sizing import node_conf
from tests.stacks import dev, existing, with_change


def pool(size: Any, **more: Any) -> WorkerPool:
    sections = dev()
    for key, value in {"size": size, **more}.items():
        sections = with_change(sections, f"worker_nodes.default.{key}", value)
    return load_config(sections).worker_nodes["default"]


def windows(written: Any, **more: Any) -> WorkerPool:
    return pool({"min": 1, "max": 8}, windows=written, **more)


def test_as_people_write_them_windows_need_no_quotes() -> None:
    written = yaml.safe_load("[{days: mon-fri, hours: 08:00-19:00, min: 4}, {days: sat sun, min: 0}]")
    first, second = windows(written, timezone="Europe/Berlin").windows
    assert (first.name, first.min) == ("mon-fri 08:00-19:00", 4)
    assert (second.name, second.min) == ("sat sun 00:00-24:00", 0)


def test_nodes_that_are_there_in_any_case_are_those_of_the_hour_with_the_fewest() -> None:
    warm = windows([{"days": "mon-fri", "hours": "08:00-19:00", "min": 4}, {"days": "sat sun", "min": 0}])
    assert (warm.least, warm.most) == (0, 8)


@pytest.mark.parametrize("where", [{"storage_class": "fast"}, {"host_path": "/mnt/nvme"}])
def test_scratch_is_the_disk_that_slurm_knows_of(where: dict[str, Any]) -> None:
    scratch = {"size": "1Ti", **where}
    gpu = load_config(with_change(existing(), "worker_nodes.gpu.scratch", scratch)).worker_nodes["gpu"]
    assert f" TmpDisk={2**20} Feature=" in node_conf("gpu", gpu)
