"""slurmdbd, its database, and the policy's Job in the graph."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cli.program.recording import Recording
from tests import stacks
from tests.graph.objects import changed, containers, environment, inputs, mounts, named, objects, pod, recorded, volumes

EXTERNAL = {
    "host": "db.example",
    "password": {"name": "db", "key": "secret"},
    "tls": {"ca": {"name": "db-ca", "key": "pem"}, "client": "db-client"},
}
SLURMDBD, DATABASE, JOB = "slurm-accounting-pods", "slurm-database-pods", "slurm-policy-job"


@pytest.fixture(scope="module")
def own() -> Recording:
    return recorded()


def test_an_external_database_leaves_no_object_of_ours_for_one() -> None:
    external = recorded(accounting={"database": {"external": EXTERNAL}})
    for kind in ("StatefulSet", "Service", "PersistentVolumeClaim"):
        assert not [name for name in objects(external, kind) if name.startswith("database")]
    spec = pod(external, SLURMDBD)
    secrets = {name: volume["secret"] for name, volume in volumes(spec).items() if "secret" in volume}
    assert secrets["database-password"]["secretName"] == "db"
    assert secrets["database-password"]["items"] == [{"key": "secret", "path": "password"}]
    assert secrets["database-ca"]["items"] == [{"key": "pem", "path": "ca.crt"}]
    assert mounts(spec["containers"][0], "database-client").keys() == {"/secrets/database-client"}


def test_no_probe_ends_a_slurmdbd_that_converts_the_records_of_years(own: Recording) -> None:
    """It opens its port afterwards. Nor does an update give up before."""
    (slurmdbd,) = pod(own, SLURMDBD)["containers"]
    startup = slurmdbd["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 7 * 86_400
    assert "livenessProbe" not in slurmdbd, "it may be busy, and no restart makes it faster"


def test_without_accounting_there_is_neither_and_no_policy() -> None:
    recording = recorded(accounting={"enabled": False})
    for part in ("slurm-database", "slurm-accounting", "slurm-policy-"):
        assert not [name for name in named(recording, part) if name.startswith(part)]


# The policy


def test_its_job_comes_after_the_users_the_configuration_and_slurmdbd_and_looks_before_it_changes(
    recording: Recording,
) -> None:
    (job,) = [item for item in recording if item.name == JOB]
    needed = {urn.rpartition("::")[2] for urn in job.dependencies}
    assert {"slurm-configuration-active", "slurm-users-job", SLURMDBD} <= needed
    spec = inputs(recording, JOB)["spec"]
    assert [*containers(spec["template"]["spec"])] == ["munged", "await-config", "check-database", "policy"]
    rules = spec["podFailurePolicy"]["rules"]
    counted = [rule["onExitCodes"]["containerName"] for rule in rules if "onExitCodes" in rule]
    assert counted == ["await-config", "check-database", "policy"], "munged's end says nothing about the work"
    told = environment(containers(spec["template"]["spec"])["policy"])
    assert told.keys() == {"CLUSTER_NAME", "CONTROLLER", "ACCOUNTING", "AUTH_TYPE"}, "no secret"


def test_the_document_of_many_users_fits_into_a_config_map() -> None:
    users = {
        f"u{n:04}": {"uid": 10000 + n, "accounts": {f"t{n % 50:02}": {"fairshare": 2, "grp_tres": {"cpu": 8}}}}
        for n in range(3000)
    }
    accounts: dict[str, dict[str, int]] = {f"t{n:02}": {} for n in range(50)}
    recording = recorded(stacks.dev(), users=users, accounts=accounts)
    text = inputs(recording, "slurm-policy-document")["data"]["policy.json"]
    assert len(text) < 900_000
    assert json.loads(text)["users"]["u2999"]["associations"] == {"t49": {"fairshare": 2, "grp_tres": {"cpu": 8}}}


def test_another_configuration_of_slurm_is_no_reason_to_run_again() -> None:
    def names(settings: dict[str, Any]) -> list[str]:
        recording = recorded(changed(stacks.dev(), slurm={"settings": settings}))
        return [inputs(recording, name)["metadata"]["name"] for name in (JOB, "slurm-policy-document")]

    assert names({}) == names({"MessageTimeout": 40})
