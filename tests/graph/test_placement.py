"""Which machines the pods go to, as the cloud and the stack file say; what workers find there."""

from __future__ import annotations

from typing import Any

import pytest

from tests import stacks
from tests.graph.objects import (
    COMPONENT,
    everything,
    templates,
)
from tests.recordings import record as recorded

SAFE = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}


@pytest.mark.parametrize("sections", [stacks.dev(), everything(), stacks.nebius_full()])
def test_no_autoscaler_takes_the_machine_of_jobs_sessions_and_slurm_s_service(sections: dict[str, Any]) -> None:
    """Of all others it may: they are started elsewhere, and nobody sees it."""
    recording = recorded(sections, stack="test")
    jobs = {item.name for item in recording if item.type.endswith((":Job", ":CronJob"))}
    for name, made in templates(recording).items():
        component = made["metadata"]["labels"][COMPONENT]
        stays = component in {"worker", "login", "controller", "slurmdbd", "database"} or name in jobs
        noted = made["metadata"].get("annotations") or {}
        assert {key: noted.get(key) for key in SAFE} == (SAFE if stays else dict.fromkeys(SAFE)), name
