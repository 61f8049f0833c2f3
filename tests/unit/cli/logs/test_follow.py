"""Which containers kubectl follows for `slurmstack logs --follow`."""

from __future__ import annotations

import pytest

from cli.errors import Failure
from cli.logs.follow import where
from cli.logs.gather import chosen
from cli.logs.sources import Container
from tests.unit.images.health.tables import table


def container(pod: str, name: str, component: str, pool: str = "") -> Container:
    return Container(pod=pod, name=name, component=component, pool=pool, machine="", owners=(), restarted=False)


THERE = [
    *(container(f"controller-{n}", name, "controller") for n in (0, 1) for name in ("slurmctld", "config-agent")),
    *(container(f"{pool}-{n}", "slurmd", "worker", pool) for pool in ("cpu", "gpu") for n in (0, 1)),
    container("slurmdbd-0", "slurmdbd", "accounting"),
]


@table(
    "name, options",
    {
        "all": (None, "-l app.kubernetes.io/component in (accounting, controller, worker) --all-containers"),
        "a component": ("controller", "-l app.kubernetes.io/component in (controller) --all-containers"),
        "a container of several pods": ("slurmctld", "-l app.kubernetes.io/component in (controller) -c slurmctld"),
        "a container of one": ("slurmdbd", "slurmdbd-0 -c slurmdbd"),
        "a pool": ("gpu", "-l slurmstack/pool=gpu --all-containers"),
        "a pod": ("gpu-1", "gpu-1 --all-containers"),
    },
)
def test_kubectl_is_led_to_what_was_named(name: str | None, options: str) -> None:
    assert " ".join(where(name, chosen(name, THERE))) == options


def test_a_name_that_nothing_has_is_refused_with_the_nearest() -> None:
    with pytest.raises(Failure, match="no component, container, pool or pod 'slurmctl'") as caught:
        chosen("slurmctl", THERE)
    assert "slurmctld" in caught.value.hint
