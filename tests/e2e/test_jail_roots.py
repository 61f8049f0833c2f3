"""Another root for the jail on real Kubernetes: filled beside the old one, taken as nodes fall idle, and back."""

from __future__ import annotations

import json
import time
from typing import Any

from slurm.local_cluster import local_directory
from tests.e2e.harness import SlurmOnKubernetes, slurmstack, wait_until

OLD_ONLY = "/usr/local/bin/only-old"
GO = "/home/alice/go-on"


def ls(path: str) -> str:
    return f"ls {path} 2>/dev/null || echo absent"


def test_a_new_root_is_taken_under_a_running_job_and_the_old_one_again(two_nodes: SlurmOnKubernetes) -> None:
    slurm, mine = two_nodes, ("--config", str(two_nodes.file))
    before = dict(slurm.sections.get("jail", {}))
    slurm.ssh(f"sudo touch {OLD_ONLY}; sudo mkdir -p /opt/app; echo ours | sudo tee /opt/app/version; rm -f {GO}")
    slurm.ssh("echo of-old-times > /home/alice/note")
    script = f"while [ ! -e {GO} ]; do sleep 0.2; done; {ls(OLD_ONLY)}; echo ended"
    job = slurm.submit(script, "-w", "default-0", "--output=/home/alice/old-root.out")
    slurm.await_job(job, "RUNNING")

    slurm.change("jail", {**before, "root": "blue", "carry": ["/opt"]})

    assert slurm.ssh(ls(OLD_ONLY)).strip() == "absent", "login nodes lead into the new root"
    assert slurm.ssh("cat /opt/app/version /home/alice/note").split() == ["ours", "of-old-times"]
    assert slurm.job_state(job) == "RUNNING"
    used = pods(listed(*mine), "blue")
    assert used["login"] >= 1
    refused = slurmstack("jail", "remove", "blue", "--yes", *mine, check=False)
    assert refused.returncode == 3
    assert "the stack file names the root 'blue'" in refused.stderr

    slurm.ssh(f"touch {GO}")
    slurm.await_job(job)
    assert slurm.ssh("cat /home/alice/old-root.out").split() == [OLD_ONLY, "ended"], "it ended in the old root"
    slurm.await_rolled("default-0", "default-1")
    shown = slurm.ssh(f"srun -N2 sh -c '{ls(OLD_ONLY)}; cat /opt/app/version /home/alice/note'").split()
    assert sorted(shown) == ["absent"] * 2 + ["of-old-times"] * 2 + ["ours"] * 2
    assert pods(listed(*mine), "") == {}

    slurm.ssh("sudo touch /opt/new; sudo rm /etc/motd")
    changed = json.loads(slurmstack("jail", "diff", "--json", *mine).stdout)
    assert {"/opt/app", "/opt/new"} <= set(changed["added"])
    assert changed["removed"] == ["/etc/motd"]
    assert not changed["incomplete"]

    started = time.monotonic()
    slurm.change("jail", before)

    slurm.await_rolled("default-0", "default-1")
    print(f"back after {time.monotonic() - started:.0f} s")
    assert slurm.ssh(f"srun -N1 {ls(OLD_ONLY)}; cat /home/alice/note").split() == [OLD_ONLY, "of-old-times"]
    wait_until(lambda: not pods(listed(*mine), "blue"), "nothing leads into the new root")
    slurmstack("jail", "remove", "blue", "--yes", *mine)
    assert [item["name"] for item in listed(*mine)] == [""]
    slurm.ssh(f"sudo rm -rf {OLD_ONLY} /opt/app; rm -f {GO}")


def test_homes_have_a_volume_of_their_own_which_the_stack_file_neither_takes_nor_empties(
    two_nodes: SlurmOnKubernetes,
) -> None:
    slurm, before, pods_before = two_nodes, two_nodes.sections, two_nodes.pod_uids()
    volumes = local_directory() / "volumes" / slurm.namespace
    slurm.ssh("echo mine > /home/alice/whose")
    assert (volumes / "homes/alice/whose").read_text() == "mine\n"
    assert list((volumes / "jail/home").iterdir()) == []
    shown = slurm.ssh("srun -N2 sh -c 'cat /home/alice/whose; stat -c \"%U %a\" /home'").splitlines()
    assert sorted(shown) == ["mine"] * 2 + ["root 755"] * 2
    assert "Permission denied" in slurm.ssh("mkdir /home/more 2>&1", check=False)

    jail = {name: value for name, value in before["jail"].items() if name != "homes"}
    refused = slurm.change("jail", jail, check=False)

    slurm.sections = before
    assert refused.returncode != 0
    assert "jail.homes: homes of this cluster are on a volume of their own" in refused.stderr
    assert slurm.pod_uids() == pods_before, "nothing was touched"
    assert json.loads(slurmstack("status", "--json", "--config", str(slurm.file), check=False).stdout)["jail"]["homes"]


def listed(*options: str) -> list[dict[str, Any]]:
    return list(json.loads(slurmstack("jail", "list", "--json", *options).stdout))


def pods(found: list[dict[str, Any]], name: str) -> dict[str, int]:
    (used,) = [item["pods"] for item in found if item["name"] == name]
    return dict(used)
