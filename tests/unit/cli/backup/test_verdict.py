"""What a rehearsal makes of what it sees, and the cluster that it has: above all what that has not."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from cli.backup import throwaway
from cli.backup.verdict import Outcome, judge, text
from cli.errors import Failure
from cli.program.recording import Manifest
from cli.stack import Stack
from config import load_config
from config.sections.services import ImageRole
from tests import stacks
from tests.stacks import with_change

TOLD: dict[str, dict[str, Any]] = {
    "state": {"scripts": [3, 4, 5]},
    "database": {"records": 40, "open": [[3, 0, 900], [4, 0, 950]], "newest": [3, 4]},
    "jail": {"files": 7, "bytes": 70, "different": 0, "named": []},
}


def judged(told: dict[str, Any] | None = None, jobs: tuple[int, ...] = (2, 3, 4), answered: int = 3) -> Outcome:
    """`told`: instead of those above. `answered`: first of the two last records that slurmdbd knows."""
    outcome = Outcome(backup="19700101T001640Z", version="24.11", seconds={"total": 33, "slurmctld": 4})
    judge(outcome, {**TOLD, **(told or {})}, jobs, range(answered, 5))
    return outcome


def opened(*record: int) -> dict[str, Any]:
    return {"database": {**TOLD["database"], "open": [*TOLD["database"]["open"], list(record)]}}


def jail(files: int, different: int) -> dict[str, Any]:
    return {"jail": {"files": files, "bytes": 70, "different": different, "named": ["'/jail/x': is missing"]}}


def test_a_backup_that_is_as_it_was() -> None:
    outcome = judged()
    assert not outcome.problems
    assert outcome.found["state"] == {"jobs": 3, "compared": 2}
    said = text(outcome)
    assert "is as it was (33 s)" in said
    assert "  state     3 jobs, 2 compared\n" in said
    assert "slurmctld answered after 4.0 s" in said


@pytest.mark.parametrize(
    ("outcome", "problems"),
    [
        (judged(opened(5, 0, 989)), ["state: slurmctld has lost jobs of the queue: 5"]),
        (judged(opened(5, 0, 10001, 989)), ["state: slurmctld has lost jobs of the queue: 5"]),
        (judged(opened(77, 5, 989)), ["state: slurmctld has lost jobs of the queue: 77"]),
        (judged(opened(5, 0, 990)), []),
        (judged(opened(8, 0, 10)), []),
        (judged(answered=4), ["database: slurmdbd does not know records of jobs: 3"]),
        (judged(jail(7, 1)), ["jail: 1 of 7 files are not as they were; '/jail/x': is missing"]),
        (judged(jail(0, 0)), ["jail: 0 of 0 files are not as they were; '/jail/x': is missing"]),
    ],
    ids=[
        "lost",
        "of older images",
        "of an array",
        "between the parts",
        "no script",
        "no record",
        "files differ",
        "no files",
    ],
)
def test_what_is_not_as_it_was_is_a_problem(outcome: Outcome, problems: list[str]) -> None:
    assert outcome.problems == problems
    assert ("is NOT as it was" in text(outcome)) == bool(problems)


def stack(sections: dict[str, Any]) -> Stack:
    return Stack(name="prod", file=Path("Pulumi.prod.yaml"), sections=sections, config=load_config(sections))


def made(sections: dict[str, Any], *, jail: bool = True) -> list[Manifest]:
    found = throwaway.sections_for(stack(sections))
    return throwaway.objects_for(found, of="slurm", stack="prod", jail=jail)


def one(objects: list[Manifest], kind: str, name: str) -> dict[str, Any]:
    (found,) = [item.document for item in objects if (item.kind, item.name) == (kind, name)]
    return found


FULL = {
    **stacks.existing_full(),
    "monitoring": {"install": True, "storage": "1Gi"},
    "network_policies": {"enabled": True},
}
ELASTIC = with_change(stacks.existing_full(), "worker_nodes.cpu.size", {"min": 0, "max": 4})


@pytest.mark.parametrize("sections", [FULL, ELASTIC], ids=["full", "elastic"])
def test_nothing_in_it_costs_machines_runs_jobs_saves_or_is_seen_from_outside(sections: dict[str, Any]) -> None:
    objects = made(sections)
    pods = [
        item.name for item in objects if item.kind in {"StatefulSet", "Deployment", "DaemonSet", "Job", "PodTemplate"}
    ]
    assert "priorityClassName" not in str([item.document for item in objects]), "it would be one that is not sent"
    assert sorted(pods) == ["controller", "database", "slurmdbd"]
    assert sorted(item.name for item in objects if item.kind == "CronJob") == ["backups", "restore"]
    assert all(one(objects, "CronJob", name)["spec"]["suspend"] for name in ("backups", "restore"))
    services = {item.name: item.document["spec"].get("type", "ClusterIP") for item in objects if item.kind == "Service"}
    assert services == dict.fromkeys(["nodes", "controller-0", "slurmdbd-0", "database"], "ClusterIP")
    assert {item.document["metadata"]["namespace"] for item in objects[1:]} == {"slurm-rehearsal"}
    assert not [item for item in objects[1:] if item.cluster_scoped]


def test_all_partitions_are_down_and_nobody_outside_is_told() -> None:
    outside = ("epilogslurmctld", "AccountingStorageExternalHost", "ResvEpilog", "BurstBufferType")
    theirs = {"MailProg": "/usr/bin/mail", "KillWait": 5, **dict.fromkeys(outside, "x")}
    sections = with_change(FULL, "slurm.settings", theirs)
    sections = with_change(sections, "partitions.gpu.settings", {"state": "UP", "PriorityTier": 10})
    lines = one(made(sections), "ConfigMap", "slurm-config")["data"]["slurm.conf"].splitlines()
    partitions = [line for line in lines if line.startswith("PartitionName=")]
    assert len(partitions) == 2
    assert all("State=DOWN" in line and line.lower().count("state=") == 1 for line in partitions)
    assert {"MailProg=/bin/true", "SlurmdTimeout=0", "KillWait=5", "ClusterName=slurm"} <= set(lines)
    assert not [line for line in lines for key in outside if line.lower().startswith(key.lower())]


def test_its_repository_is_the_cluster_s_and_its_database_is_its_own() -> None:
    external = {"host": "db.example.com", "password": {"name": "db", "key": "password"}}
    objects = made(with_change(FULL, "accounting.database", {"external": external}))
    pod = one(objects, "CronJob", "restore")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (choose,) = [item for item in pod["initContainers"] if item["name"] == "restore-choose"]
    assert {"name": "REPOSITORY", "value": "https://storage.example.com/site-backups/slurm"} in choose["env"]
    assert "db.example.com" not in str([item.document for item in objects])
    assert one(objects, "StatefulSet", "database")["spec"]["replicas"] == 1


def test_where_there_can_be_none_one_message_says_why() -> None:
    with pytest.raises(Failure, match="file systems that Nebius makes"):
        throwaway.sections_for(stack({**stacks.nebius(), "backup": FULL["backup"]}))


def test_another_release_has_its_own_images_and_slurm_conf() -> None:
    digests = dict.fromkeys(get_args(ImageRole), f"sha256:{'0' * 64}")
    pinned = with_change(FULL, "images", {**FULL["images"], "tag": "old", "digests": digests})
    for tag, shown in (("", ":26.05-"), ("new", ":new")):
        found = throwaway.sections_for(stack(pinned), version="26.05", tag=tag)
        objects = throwaway.objects_for(found, of="slurm", stack="prod", jail=False)
        (slurmctld, *_) = one(objects, "StatefulSet", "controller")["spec"]["template"]["spec"]["containers"]
        assert shown in slurmctld["image"]
        assert "for Slurm 26.05" in one(objects, "ConfigMap", "slurm-config")["data"]["slurm.conf"]
    assert "@sha256:000" in str([item.document for item in made(pinned)]), (
        "the release that runs has those of the stack"
    )
