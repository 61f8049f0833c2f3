"""Pods of backups and restores: what they see, where they run, and what they have no right to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.program.recording import Recording
from cli.program.values import reveal
from config import load_config
from config.load import sections_of
from tests import stacks
from tests.graph import objects
from tests.graph.objects import containers, environment, pod, recorded
from tests.graph.reachability import network

FULL = stacks.existing_full()
BACKUP, BACKUPS, RESTORE = "slurm-backup-backup", "slurm-backup-backups", "slurm-backup-restore"


@pytest.fixture(scope="module")
def saved() -> Recording:
    return recorded(FULL)


def mounts(container: dict[str, Any]) -> dict[str, bool]:
    """Path -> whether it is read only."""
    return {path: mount.get("readOnly", False) for path, mount in objects.mounts(container).items()}


def test_backup_and_rehearsal_run_by_a_schedule_and_a_restore_takes_as_long_as_it_takes() -> None:
    assert not objects.objects(recorded(), "CronJob"), "by default there is none"
    found = objects.objects(recorded(FULL, backup__schedule="30 1 * * 1-5"), "CronJob")
    specs = {name: item["spec"] for name, item in found.items()}
    limits = {
        name: (spec["suspend"], spec["jobTemplate"]["spec"].get("activeDeadlineSeconds"))
        for name, spec in specs.items()
    }
    looked = dict.fromkeys(("backups", "restore"), (True, None))
    assert limits == {"backup": (False, 43_200), "rehearse": (False, 43_200), **looked}
    assert specs["rehearse"]["schedule"] == "0 5 * * 0", "each week"
    by_hand = objects.objects(recorded(FULL, backup__rehearse=None), "CronJob")["rehearse"]
    assert by_hand["spec"]["suspend"]
    assert specs["backup"]["schedule"] == "30 1 * * 1-5"
    assert specs["backup"]["concurrencyPolicy"] == "Forbid"


def test_a_backup_can_write_nothing_that_it_saves(saved: Recording) -> None:
    saving = containers(pod(saved, BACKUP))
    assert mounts(saving["backup-state"])["/stage/volume"]
    assert mounts(saving["backup-jail"])["/jail"]
    assert all(read_only for path, read_only in mounts(saving["backup-state"]).items() if path.startswith("/secrets"))


def test_keys_of_the_store_are_in_no_file_and_a_certificate_of_its_authority_may_be_missing(saved: Recording) -> None:
    spec = pod(saved, BACKUP)
    (volume,) = [volume["secret"] for volume in spec["volumes"] if volume["name"] == "repository"]
    assert (volume["secretName"], volume["optional"]) == ("backup", True)
    assert [item["key"] for item in volume["items"]] == ["ca.crt"]
    for container in containers(spec).values():
        given = {item["name"]: item["valueFrom"] for item in container["env"] if "valueFrom" in item}
        assert {name: source["secretKeyRef"]["key"] for name, source in given.items()} == {
            "AWS_ACCESS_KEY_ID": "access-key-id", "AWS_SECRET_ACCESS_KEY": "secret-access-key",
            "RESTIC_PASSWORD": "password",
        }  # fmt: skip


def test_only_the_container_that_needs_it_sees_a_volume(saved: Recording) -> None:
    seen = {
        name: {*mounts(container)} & {"/jail", "/stage/volume", "/secrets/database"}
        for cron_job in (BACKUP, BACKUPS, RESTORE)
        for name, container in containers(pod(saved, cron_job)).items()
    }
    assert seen == {
        "backup-state": {"/stage/volume", "/secrets/database"}, "backup-jail": {"/jail"},
        "backups": set(),
        "restore-state": {"/stage/volume", "/secrets/database"}, "restore-jail": {"/jail"}, "users": {"/jail"},
    }  # fmt: skip


def test_a_rehearsal_has_the_repository_and_nothing_else_of_the_cluster() -> None:
    external = {"host": "db.example.com", "password": {"name": "db", "key": "password"}}
    spec = pod(recorded(FULL, accounting__database={"external": external}), "slurm-backup-rehearse")
    theirs = {volume["name"] for volume in spec["volumes"] if "emptyDir" not in volume}
    assert theirs == {"repository", "conf"}, "the certificate of the store's authority, and Slurm's files"
    assert "db.example.com" not in str(spec)


@pytest.mark.parametrize(("name", "container"), [(BACKUP, "backup-jail"), (RESTORE, "restore-jail")])
def test_who_reads_what_users_write_has_no_key_in_its_files(saved: Recording, name: str, container: str) -> None:
    """A user may swap a directory for a link while it is read, and have whatever the link leads to saved as his own."""
    assert mounts(containers(pod(saved, name))[container]).keys() <= {"/jail", "/secrets/repository", "/cache"}


def test_machines_of_the_controller_have_the_jail_for_it_and_it_looks_whether_they_do() -> None:
    recording = recorded(stacks.nebius(), backup={**FULL["backup"], "exclude": ["/scratch"]})
    for name, container in ((BACKUP, "backup-jail"), (RESTORE, "restore-jail")):
        told = environment(containers(pod(recording, name))[container])
        assert told["EXPECT_FILESYSTEM"] == "virtiofs"
        assert told["EXCLUDE"] == '["/scratch"]', "what is excluded is neither saved nor overwritten"

    def tags(given: Recording) -> set[str]:
        groups = [reveal(item.inputs)["template"] for item in given if item.type.endswith(":Mk8sV1NodeGroup")]
        (group,) = [one for one in groups if one["metadata"]["labels"].get("slurmstack/role") == "controller"]
        return {item["mountTag"] for item in group.get("filesystems", [])}

    assert "jail" in tags(recording)
    assert "jail" not in tags(recorded(stacks.nebius()))


def test_it_reaches_its_store_and_the_database_and_no_credentials_of_the_cloud() -> None:
    net = network(recorded(FULL, backup__endpoint="http://s3.example.com:9000"))
    assert net.allows("backup", "203.0.113.7", 9000)
    assert not net.allows("backup", "203.0.113.7", 9001)
    assert not net.allows("backup", "169.254.169.254", 9000)
    assert not [other for other in ("login", "worker", "slurmdbd", "rest") if net.allows(other, "backup", 443)]


@pytest.mark.parametrize("sections", [FULL, {**stacks.nebius(), "backup": FULL["backup"]}], ids=["full", "nebius"])
def test_the_stack_file_is_saved_as_it_was_applied_and_makes_the_same_cluster(sections: dict[str, Any]) -> None:
    (saved,) = [item for name, item in objects.objects(recorded(sections), "ConfigMap").items() if name == "stack-file"]
    ((name, text),) = saved["data"].items()
    assert name.startswith("Pulumi.")
    document = yaml.safe_load(text)
    assert load_config(sections_of(document, where=Path(name))) == load_config(sections)


def test_restic_is_bound_in_cpus_and_where_it_is_wanted_in_bandwidth(saved: Recording) -> None:
    told = environment(containers(pod(saved, BACKUP))["backup-jail"])
    assert told["GOMAXPROCS"] == "2"
    assert "BANDWIDTH" not in told
    bound = recorded(FULL, backup__bandwidth="10Mi")
    assert environment(containers(pod(bound, BACKUP))["backup-jail"])["BANDWIDTH"] == str(10 * 2**20)
