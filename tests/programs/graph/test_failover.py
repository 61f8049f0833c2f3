"""Two controllers: what they are made of, and what all others see of them."""

from __future__ import annotations

from typing import Any

from cli.program.recording import Recording
from slurm import names
from tests import stacks
from tests.graph.elastic import objects
from tests.recordings import record
from tests.stacks import with_change


def two(sections: dict[str, Any] | None = None, **more: Any) -> Recording:
    found = with_change(sections or stacks.dev(), "controller.replicas", 2)
    for path, value in more.items():
        found = with_change(found, path.replace("__", "."), value)
    return record(found, stack="prod")


def test_one_address_leads_to_the_active_one_and_nobody_else_is_told_of_two() -> None:
    """Everything that names the controller is the same with one and with two."""
    one, both = record(stacks.dev(), stack="prod"), two()
    service = objects(both, "Service")["controller-0"]["spec"]
    assert service["selector"][names.ACTIVE] == "yes"
    assert "statefulset.kubernetes.io/pod-name" not in service["selector"]
    assert objects(one, "ConfigMap")["slurm-config"] == objects(both, "ConfigMap")["slurm-config"]
    assert objects(one, "StatefulSet")["default"] == objects(both, "StatefulSet")["default"]
