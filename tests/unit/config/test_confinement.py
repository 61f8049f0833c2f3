"""`worker_nodes.<pool>.confinement` and `containers`, and what it has to do with Slurm's own settings."""

from __future__ import annotations

from typing import Any

import pytest

from config import load_config
from slurm.conf import effective_settings
from tests import stacks
from tests.stacks import with_change
from tests.unit.config.messages import complaints


def with_pool(**fields: Any) -> dict[str, Any]:
    """The development stack, with these fields in all its pools."""
    sections = stacks.dev()
    pools = {name: {**pool, **fields} for name, pool in sections["worker_nodes"].items()}
    return {**sections, "worker_nodes": pools}


@pytest.mark.parametrize("key", ["ProctrackType", "taskplugin", "JobAcctGatherType"])
def test_what_workers_decide_by_their_machines_is_no_setting(key: str) -> None:
    sections = {**with_pool(), "slurm": {"settings": {key: "x/y"}}}
    (told,) = [line for line in complaints(sections) if key in line]

    assert "workers decide" in told
    assert "confinement: off in worker_nodes." in told
    load_config({**with_pool(confinement="off"), "slurm": {"settings": {key: "x/y"}}})


def test_pods_that_may_not_touch_their_cgroups_cannot_be_required_to() -> None:
    told = complaints(with_pool(confinement="required", security="baseline"))

    assert all("may not touch their cgroups" in line for line in told)
    load_config(with_pool(confinement="auto", security="baseline"))


def test_containers_take_the_jail_and_no_cgroups() -> None:
    told = complaints(with_pool(containers=True, security="baseline"))

    assert told
    assert all("containers: true and security: baseline" in line for line in told)
    load_config(with_pool(containers=True, confinement="off"))
    load_config(with_pool(containers=False, security="baseline"))


@pytest.mark.parametrize("request_", ["100m", "3900m"])
def test_cores_that_others_use_too_cannot_be_required(request_: str) -> None:
    """The worker itself would not start then."""
    (told,) = complaints(requiring(cpu_request=request_))
    assert told == (
        f"worker_nodes.cpu.confinement: is required, and a cpu_request of {request_} leaves CPUs to other pods; set "
        "cpu_request to at least cpus, 4, or confinement: auto"
    )


@pytest.mark.parametrize("resources", [{}, {"cpu_request": "4"}, {"cpu_request": "8"}])
def test_cores_that_are_the_pod_s_own_can_be_required(resources: dict[str, str]) -> None:
    load_config(requiring(**resources))


def requiring(**resources: str) -> dict[str, Any]:
    sections = with_change(stacks.existing(), "worker_nodes.cpu.confinement", "required")
    return with_change(sections, "worker_nodes.cpu.resources", {"cpus": 4, "memory": "16Gi", **resources})


def test_workers_of_the_local_cluster_share_its_cpus() -> None:
    sections = with_pool(confinement="required")
    told = complaints(sections)
    assert all("local cluster share the machine's CPUs" in line for line in told)
    assert len(told) == len(sections["worker_nodes"])
    for pool in sections["worker_nodes"].values():
        pool["resources"] = {**pool["resources"], "cpu_request": str(pool["resources"]["cpus"])}
    load_config(sections)


def test_slurmctld_takes_workers_for_granted_that_read_lines_of_their_own() -> None:
    settings = {"slurm": {"settings": {"DebugFlags": "Backfill"}}}

    assert effective_settings(load_config(stacks.dev()))["DebugFlags"] == "NO_CONF_HASH"
    assert effective_settings(load_config({**stacks.dev(), **settings}))["DebugFlags"] == "NO_CONF_HASH,Backfill"
