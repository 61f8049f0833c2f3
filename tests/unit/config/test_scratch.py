"""A pool's scratch: a claim of its own or a directory of the machine, and never both."""

from __future__ import annotations

from typing import Any

import pytest

from config import load_config
from slurm.sizing import node_conf
from tests import stacks
from tests.stacks import with_change

CLAIM = {"size": "1Ti", "storage_class": "fast"}
DIRECTORY = {"size": "1Ti", "host_path": "/mnt/nvme"}


@pytest.mark.parametrize("scratch", [CLAIM, DIRECTORY])
def test_a_pool_may_have_either(scratch: dict[str, Any]) -> None:
    pool = load_config(with_change(stacks.existing(), "worker_nodes.gpu.scratch", scratch)).worker_nodes["gpu"]
    assert pool.scratch is not None
    assert f" TmpDisk={2**20} Feature=" in node_conf("gpu", pool)
