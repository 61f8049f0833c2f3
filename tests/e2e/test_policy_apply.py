"""The declared policy on real Kubernetes: shown before, applied, kept against changes by hand, refused as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.e2e.conftest import ENGINES, keep_state
from tests.e2e.harness import SlurmOnKubernetes, make_key, slurmstack
from tests.stacks import dev

POLICY: dict[str, Any] = {
    "accounts": {"ml": {"fairshare": 10}, "vision": {"parent": "ml", "grp_tres": {"cpu": 2}}},
    "qos": {"high": {"priority": 100}},
}


@pytest.fixture(scope="module", params=ENGINES)
def slurm(
    request: pytest.FixtureRequest, local_kubernetes: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SlurmOnKubernetes]:
    """A cluster that was just applied."""
    engine: str = request.param
    directory = tmp_path_factory.mktemp(f"applied-{engine}")
    key = make_key(directory / "key")
    user = {"uid": 10001, "ssh_authorized_keys": [key], "accounts": {"ml": {"fairshare": 3}, "vision": {}}}
    sections = dev() | POLICY | {"cluster": {"namespace": f"e2e-applied-{engine}"}, "users": {"alice": user}}
    sections["login"] = {"size": 1, "service_type": "ClusterIP"}
    keep_state(engine, directory)
    cluster = SlurmOnKubernetes(engine=engine, directory=directory, sections=sections)
    try:
        cluster.up()
        cluster.await_idle("default-0", "default-1")
    except BaseException:
        print(f"logs: {cluster.collect_logs(f'setup-policy-{engine}')}")
        raise
    yield cluster
    # The database lies on a static volume, which outlives the cluster: the next one would find this policy.
    cluster.sections = {**cluster.sections, "accounts": {}, "qos": {}, "users": {}, "accounting": {"prune": True}}
    cluster.up()
    slurmstack("destroy", "--yes", "--kill-jobs", "--delete-data", "--engine", engine, "--config", str(cluster.file))


def policy(slurm: SlurmOnKubernetes) -> Any:
    """What Slurm has, for comparison."""
    columns = "account,user,parentname,share,grptres,comment"
    lists = (f"assoc wopl format={columns}", "qos format=name,priority,description", "user")
    return [slurm.slurm(f"sacctmgr --noheader --parsable2 list {what}").splitlines() for what in lists]


def test_the_first_up_makes_what_the_stack_file_says(slurm: SlurmOnKubernetes) -> None:
    assert "vision|alice||1||slurmstack" in policy(slurm)[0]


def test_a_change_by_hand_is_shown_by_preview_and_undone_by_up(slurm: SlurmOnKubernetes) -> None:
    before = policy(slurm)
    slurm.slurm("sacctmgr --immediate modify account where name=ml set fairshare=77")
    slurm.slurm("sacctmgr --immediate add account handmade")

    shown = slurm.preview()["policy"]
    done = slurm.up()

    kept = "! account handmade was made by hand: kept (accounting.prune: true removes it)"
    assert shown["changes"] == ["~ account ml: fairshare 77 => 10"]
    assert shown["notes"] == [kept]
    assert "~ account ml: fairshare 77 => 10" in done.stdout
    assert kept in done.stdout
    slurm.slurm("sacctmgr --immediate delete account where name=handmade")
    assert policy(slurm) == before


def test_what_slurm_refuses_of_a_policy_is_told_and_the_next_up_goes_on(slurm: SlurmOnKubernetes) -> None:
    before, sections = policy(slurm), slurm.sections
    tomorrow = f"{datetime.now(UTC) + timedelta(days=1):%Y-%m-%dT08:00:00}"
    slurm.slurm(f"scontrol create reservationname=byhand starttime={tomorrow} duration=60 nodes=default-0 users=root")
    course = {"start": tomorrow, "duration": "60", "nodes": ["default-0"], "accounts": ["ml"]}
    slurm.sections = {**sections, "qos": {}, "reservations": {"course": course}}

    done = slurm.change("accounts.ml.fairshare", 44, check=False)

    slurm.sections = sections
    assert done.returncode != 0
    assert "overlaps with another reservation" in done.stdout + done.stderr
    assert "course" not in slurm.slurm("scontrol show reservation")
    slurm.slurm("scontrol delete reservationname=byhand")
    slurm.up()
    assert policy(slurm) == before
