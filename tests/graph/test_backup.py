"""Pods of backups and restores: what they see, where they run, and what they have no right to."""

from __future__ import annotations

from typing import Any

import pytest

from cli.program.recording import Recording
from cli.program.values import reveal
from tests import stacks
from tests.graph.reachability import network
from tests.recordings import record
from tests.stacks import with_change


def cron_jobs(**backup: Any) -> dict[str, dict[str, Any]]:
    sections = stacks.existing_full()
    for key, value in backup.items():
        sections = with_change(sections, f"backup.{key}", value)
    found = record(sections, stack="prod").of_type("kubernetes:batch/v1:CronJob")
    return {reveal(item.inputs)["metadata"]["name"]: reveal(item.inputs)["spec"] for item in found}


def pod(spec: dict[str, Any]) -> dict[str, Any]:
    return dict(spec["jobTemplate"]["spec"]["template"]["spec"])


def containers(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {item["name"]: item for item in [*pod(spec).get("initContainers", []), *pod(spec)["containers"]]}


def mounts(container: dict[str, Any]) -> dict[str, bool]:
    return {mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}


def test_by_default_there_is_none() -> None:
    assert not record(stacks.existing(), stack="prod").of_type("kubernetes:batch/v1:CronJob")


def test_only_the_backup_itself_runs_by_a_schedule() -> None:
    found = cron_jobs(schedule="30 1 * * 1-5")
    assert {name: spec["suspend"] for name, spec in found.items()} == {
        "backup": False, "backups": True, "restore": True,
    }  # fmt: skip
    assert found["backup"]["schedule"] == "30 1 * * 1-5"
    assert found["backup"]["concurrencyPolicy"] == "Forbid"


def test_a_backup_runs_on_the_machine_of_slurmctld_whose_volume_no_other_may_have() -> None:
    spec = pod(cron_jobs()["backup"])
    (term,) = spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] == "controller"
    assert "affinity" not in pod(cron_jobs()["restore"]), "slurmctld is away then"


def test_a_backup_can_write_nothing_that_it_saves() -> None:
    saving = containers(cron_jobs()["backup"])
    assert mounts(saving["backup-state"])["/stage/volume"]
    assert mounts(saving["backup-jail"])["/jail"]
    assert all(read_only for path, read_only in mounts(saving["backup-state"]).items() if path.startswith("/secrets"))


def test_who_reads_what_users_write_has_no_key_in_its_files() -> None:
    """A user may swap a directory for a link while it is read, and have whatever the link leads to saved as his own."""
    for spec, name in (("backup", "backup-jail"), ("restore", "restore-jail")):
        found = mounts(containers(cron_jobs()[spec])[name])
        assert not [path for path in found if path.startswith("/secrets")]
        assert found.keys() <= {"/jail", "/handover", "/cache"}


def test_only_the_container_that_needs_it_sees_a_volume() -> None:
    seen = {
        name: {path for path in mounts(item) if path in {"/jail", "/stage/volume", "/secrets/database"}}
        for spec in cron_jobs().values()
        for name, item in containers(spec).items()
    }
    assert seen == {
        "backup-state": {"/stage/volume"}, "backup-database": {"/secrets/database"}, "backup-jail": {"/jail"},
        "backups": set(), "restore-choose": set(), "restore-look": {"/stage/volume"},
        "restore-database": {"/secrets/database"}, "restore-state": {"/stage/volume"},
        "restore-jail": {"/jail"}, "users": {"/jail"},
    }  # fmt: skip


def test_accounts_in_a_restored_jail_are_those_of_the_stack_file() -> None:
    assert list(containers(cron_jobs()["restore"]))[-2:] == ["restore-jail", "users"]
    (told,) = [volume for volume in pod(cron_jobs()["restore"])["volumes"] if volume["name"] == "users"]
    jobs = record(stacks.existing_full(), stack="prod").of_type("kubernetes:batch/v1:Job")
    specs = [reveal(job.inputs)["spec"] for job in jobs]
    assert any(told in spec["template"]["spec"].get("volumes", []) for spec in specs)


def test_a_restore_takes_as_long_as_it_takes() -> None:
    limits = {name: spec["jobTemplate"]["spec"].get("activeDeadlineSeconds") for name, spec in cron_jobs().items()}
    assert limits == {"backup": 43_200, "backups": None, "restore": None}


def test_machines_of_the_controller_have_the_jail_for_it_and_it_looks_whether_they_do() -> None:
    backup = stacks.existing_full()["backup"]
    recording = record({**stacks.nebius(), "backup": backup}, stack="prod")
    found = {reveal(item.inputs)["metadata"]["name"]: reveal(item.inputs)["spec"]
             for item in recording.of_type("kubernetes:batch/v1:CronJob")}  # fmt: skip
    for container in ("backup-jail", "restore-jail"):
        (spec,) = [spec for spec in found.values() if container in containers(spec)]
        told = {item["name"]: item["value"] for item in containers(spec)[container]["env"]}
        assert told["EXPECT_FILESYSTEM"] == "virtiofs"

    def tags(recording: Recording) -> set[str]:
        groups = [reveal(item.inputs) for item in recording if item.type.endswith(":Mk8sV1NodeGroup")]
        labelled = [(group["template"]["metadata"]["labels"], group) for group in groups]
        (group,) = [group for labels, group in labelled if labels.get("slurmstack/role") == "controller"]
        return {item["mountTag"] for item in group["template"].get("filesystems", [])}

    assert "jail" in tags(recording)
    assert "jail" not in tags(record(stacks.nebius(), stack="prod"))


def test_without_accounting_there_is_no_database_to_save() -> None:
    sections = with_change(stacks.existing_full(), "accounting", {"enabled": False})
    sections = {key: value for key, value in sections.items() if key != "rest"}
    found = record(sections, stack="prod").of_type("kubernetes:batch/v1:CronJob")
    for item in found:
        assert not [name for name in containers(reveal(item.inputs)["spec"]) if name.endswith("-database")]


@pytest.mark.parametrize(("endpoint", "port"), [("https://s3.example.com", 443), ("http://s3.example.com:9000", 9000)])
def test_it_reaches_its_store_and_the_database_and_no_credentials_of_the_cloud(endpoint: str, port: int) -> None:
    net = network(record(with_change(stacks.existing_full(), "backup.endpoint", endpoint), stack="prod"))
    assert net.allows("backup", "203.0.113.7", port)
    assert not net.allows("backup", "203.0.113.7", port + 1)
    assert not net.allows("backup", "169.254.169.254", port)
    assert not [other for other in ("login", "worker", "slurmdbd", "rest") if net.allows(other, "backup", 443)]
