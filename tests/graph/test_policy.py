"""The policy in the graph: a document and a job, named by what they are made of, that come after all they need."""

from __future__ import annotations

import json
from typing import Any

from cli.program.recording import Recording, Registration
from cli.program.values import reveal
from tests import stacks
from tests.recordings import record
from tests.stacks import with_change

JOB = "slurm-policy-job"


def registered(recording: Recording) -> dict[str, Registration]:
    return {item.name: item for item in recording}


def pod(recording: Recording) -> dict[str, Any]:
    spec: dict[str, Any] = reveal(registered(recording)[JOB].inputs)["spec"]["template"]["spec"]
    return spec


def test_the_job_comes_after_the_users_the_configuration_and_slurmdbd(recording: Recording) -> None:
    needed = {urn.rpartition("::")[2] for urn in registered(recording)[JOB].dependencies}

    assert {"slurm-configuration-active", "slurm-users-job", "slurm-accounting-pods"} <= needed


def test_configuration_and_database_are_looked_at_before_anything_is_changed(recording: Recording) -> None:
    spec = pod(recording)

    assert [container["name"] for container in spec["initContainers"]] == ["munged", "await-config", "check-database"]
    assert [container["name"] for container in spec["containers"]] == ["policy"]
    rules = reveal(registered(recording)[JOB].inputs)["spec"]["podFailurePolicy"]["rules"]
    counted = [rule["onExitCodes"]["containerName"] for rule in rules if "onExitCodes" in rule]
    assert counted == ["await-config", "check-database", "policy"], "munged's end says nothing about the work"


def test_no_secret_is_in_the_document_or_the_environment_of_the_job(recording: Recording) -> None:
    names = {item["name"] for item in pod(recording)["containers"][0]["env"]}

    assert names == {"CLUSTER_NAME", "CONTROLLER", "ACCOUNTING", "AUTH_TYPE"}


def test_the_document_of_many_users_fits_into_a_config_map() -> None:
    users = {
        f"u{n:04}": {"uid": 10000 + n, "accounts": {f"t{n % 50:02}": {"fairshare": 2, "grp_tres": {"cpu": 8}}}}
        for n in range(3000)
    }
    accounts: dict[str, dict[str, int]] = {f"t{n:02}": {} for n in range(50)}

    recording = record({**stacks.dev(), "users": users, "accounts": accounts}, stack="dev")

    text = reveal(registered(recording)["slurm-policy-document"].inputs)["data"]["policy.json"]
    assert len(text) < 900_000
    assert json.loads(text)["users"]["u2999"]["associations"] == {"t49": {"fairshare": 2, "grp_tres": {"cpu": 8}}}


def test_another_configuration_of_slurm_is_no_reason_to_run_again() -> None:
    def names(settings: dict[str, Any]) -> tuple[str, str]:
        recording = registered(record(with_change(stacks.dev(), "slurm", {"settings": settings}), stack="dev"))
        job, document = (reveal(recording[name].inputs)["metadata"]["name"] for name in (JOB, "slurm-policy-document"))
        return job, document

    assert names({}) == names({"MessageTimeout": 40})
