"""A backup on real Kubernetes, and back: by the commands, with a real S3 store beside the cluster."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from local.addresses import from_environment
from tests.e2e.harness import SlurmOnKubernetes, slurmstack
from tests.s3_store import BUCKET, KEYS, s3_store

pytestmark = pytest.mark.watch  # it takes minutes: a lane of its own, nearly

PLACE = "/home/alice/kept"
KEY = "/etc/ssh/authorized_keys.d/alice"


def test_queue_accounting_and_homes_come_back_and_job_ids_go_on(two_nodes: SlurmOnKubernetes) -> None:
    slurm, mine = two_nodes, ("--config", str(two_nodes.file))
    for name, value in KEYS.items():
        (slurm.directory / name).write_text(value, encoding="utf-8")
    files = [f"--from-file={name}={slurm.directory / name}" for name in KEYS]
    slurm.kubectl.run("create", "secret", "generic", "backup", "-n", slurm.namespace, *files)
    with s3_store() as store:
        port = store.listen(from_environment().host)
        slurm.change(
            "backup",
            {
                "endpoint": f"http://{from_environment().host}:{port}",
                "bucket": BUCKET,
                "credentials_secret": "backup",
                "schedule": "0 0 29 2 *",
                # The system's files, of which the jail has 30,000.
                "exclude": ["/usr", "/var", "/opt", "/etc"],
            },
        )
        held = slurm.submit("hostname", "--hold", "--job-name=held", "--output=/dev/null")
        slurm.ssh(f"echo of-old >{PLACE}; chmod 640 {PLACE}")
        time.sleep(12)  # a rehearsal counts on what is ten seconds older than the backup
        slurmstack("backup", "now", *mine)
        a_rehearsal_finds_it_as_it_was(slurm, mine)
        the_next_release_starts_from_it_as_well(slurm, mine)
        slurm.slurm(f"scancel {held}")
        after = slurm.submit("hostname", "--output=/dev/null")
        slurm.ssh(f"rm {PLACE}; touch /home/alice/later; sudo rm {KEY}")
        slurm.await_job(after)
        slurmstack("restore", "--yes", "--no-copy", *mine)  # tests/slurm looks at the copy
    slurm.await_idle("default-0", "default-1")
    assert slurm.job_field(held, "JobName") == "held"
    # That alice gets in at all: accounts are made anew after the jail has come back.
    assert slurm.ssh(f"cat {PLACE}; stat -c '%a %U' {PLACE}; ls /home/alice/later").split() == [
        "of-old", "640", "alice", "/home/alice/later",
    ], "what has come since stays"  # fmt: skip
    assert not slurm.slurm(f"sacct --noheader --jobs={after}").strip(), "accounting is that of the backup, too"
    assert int(slurm.submit("hostname", "--output=/dev/null")) > int(after)
    slurm.slurm(f"scontrol release {held}")
    slurm.await_job(held)
    slurm.sections = {name: value for name, value in slurm.sections.items() if name != "backup"}


def a_rehearsal_finds_it_as_it_was(slurm: SlurmOnKubernetes, mine: tuple[str, ...]) -> None:
    before = slurm.pod_uids()
    outcome = json.loads(slurmstack("backup", "rehearse", "--json", *mine).stdout)
    judged(outcome)
    assert slurm.pod_uids() == before, "the cluster itself goes on"
    (listed,) = json.loads(slurmstack("backup", "list", "--json", *mine).stdout)
    assert listed["id"] == outcome["backup"], "it has saved nothing"
    (cronjob,) = slurm.kubectl.items("cronjob", "rehearse", "-n", slurm.namespace)
    assert cronjob["status"]["lastSuccessfulTime"]


def judged(outcome: dict[str, Any]) -> None:
    assert all(outcome["found"][what] >= 1 for what in ("jobs", "associations", "in the queue")), outcome
    assert {"slurmdbd", "slurmctld", "total"} <= outcome["seconds"].keys()


def the_next_release_starts_from_it_as_well(slurm: SlurmOnKubernetes, mine: tuple[str, ...]) -> None:
    before = slurm.pod_uids()
    outcome = json.loads(slurmstack("backup", "rehearse", "--version", "26.05", "--json", *mine).stdout)
    judged(outcome)
    assert outcome["slurm"] == "26.05"
    assert slurm.pod_uids() == before, "the cluster itself goes on, with the release that it has"
