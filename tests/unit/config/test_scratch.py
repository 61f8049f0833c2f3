"""A pool's scratch: a claim of its own or a directory of the machine, and never both."""

from __future__ import annotations

from typing import Any

import pytest

from config import load_config
from slurm.sizing import node_conf
from tests import stacks
from tests.stacks import with_change
from tests.unit.config.messages import complaints

CLAIM = {"size": "1Ti", "storage_class": "fast"}
DIRECTORY = {"size": "1Ti", "host_path": "/mnt/nvme"}


@pytest.mark.parametrize("scratch", [CLAIM, DIRECTORY])
def test_a_pool_may_have_either(scratch: dict[str, Any]) -> None:
    pool = load_config(with_change(stacks.existing(), "worker_nodes.gpu.scratch", scratch)).worker_nodes["gpu"]
    assert pool.scratch is not None
    assert f" TmpDisk={2**20} Feature=" in node_conf("gpu", pool)


@pytest.mark.parametrize("scratch", [{"size": "1Ti"}, CLAIM | DIRECTORY])
def test_both_or_neither_is_one_mistake_with_one_message(scratch: dict[str, Any]) -> None:
    (complaint,) = complaints(with_change(stacks.existing(), "worker_nodes.gpu.scratch", scratch))
    assert complaint.startswith("worker_nodes.gpu.scratch: must have exactly one of storage_class, ")


@pytest.mark.parametrize(
    "path",
    [
        "mnt/nvme",
        "/",
        "/mnt/../etc",
        "/mnt/nvme/",
        "/etc/scratch",
        "/proc",
        "/tmp/jobs",
        "",
        "/var/lib/kubelet/pods",
        "/var/lib",
    ],
)
def test_a_directory_of_the_machine_is_a_plain_path_outside_of_its_system(path: str) -> None:
    scratch = DIRECTORY | {"host_path": path}
    (complaint,) = complaints(with_change(stacks.existing(), "worker_nodes.gpu.scratch", scratch))
    assert complaint.startswith("worker_nodes.gpu.scratch.host_path: ")


def test_less_than_a_file_system_needs_is_refused() -> None:
    scratch = CLAIM | {"size": "1000Mi"}
    (complaint,) = complaints(with_change(stacks.existing(), "worker_nodes.gpu.scratch", scratch))
    assert complaint.endswith("is too little for a file system of its own; 1Gi at least")


def test_a_pool_without_the_jail_gets_nothing_of_the_machine() -> None:
    (complaint,) = complaints(with_change(stacks.existing(), "worker_nodes.plain.scratch", DIRECTORY))
    assert complaint.startswith("worker_nodes.plain: has scratch.host_path and security: baseline")
    load_config(with_change(stacks.existing(), "worker_nodes.plain.scratch", CLAIM))
