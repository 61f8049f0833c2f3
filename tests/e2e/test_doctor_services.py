"""What a cluster needs besides nodes, made to fail: munge, the agent, accounting, users, the policy, the stack file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from threading import Thread

import pytest

from tests.e2e.asking_doctor import await_nothing_found, doctor, findings, first
from tests.e2e.harness import SlurmOnKubernetes, wait_until
from tests.stacks import with_change

pytestmark = pytest.mark.watch

AWAY = "localhost/slurmstack/none:1"


def inside(slurm: SlurmOnKubernetes, pod: str, container: str, user: str, script: str, *, check: bool = True) -> str:
    """What a script prints, run as the user of a daemon: in its container root may not touch what is another's."""
    become = ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "sh", "-c", script)
    return slurm.exec(pod, *become, container=container, check=check)


@contextmanager
def without_munge(slurm: SlurmOnKubernetes) -> Iterator[None]:
    """As if munged had ended: nobody finds its socket."""
    at, away = "/run/munge/munge.socket.2", "/run/munge/away"
    inside(slurm, "controller-0", "munged", "munge", f"mv {at} {away}")
    try:
        yield
    finally:
        inside(slurm, "controller-0", "munged", "munge", f"mv {away} {at}")


@contextmanager
def silent_slurmdbd(slurm: SlurmOnKubernetes) -> Iterator[None]:
    send = "kill -{} $(cat /run/slurmdbd/slurmdbd.pid)"
    inside(slurm, "slurmdbd-0", "slurmdbd", "slurm", send.format("STOP"))
    try:
        yield
    finally:
        inside(slurm, "slurmdbd-0", "slurmdbd", "slurm", send.format("CONT"))


@contextmanager
def locked_jobs(slurm: SlurmOnKubernetes) -> Iterator[None]:
    """Somebody holds the table of jobs, and each job's records wait."""
    lock = "LOCK TABLES slurm_acct_db.slurm_job_table WRITE; SELECT SLEEP(600)"
    client = "exec mariadb --no-defaults --user=mysql --socket=/run/mysqld/mysqld.sock -e"
    shown = f"{client} 'SHOW OPEN TABLES FROM slurm_acct_db WHERE In_use > 0'"
    at = (slurm, "database-0", "mariadbd", "mysql")
    holder = Thread(target=inside, args=(*at, f"{client} '{lock}'"), kwargs={"check": False})  # it is killed in the end
    holder.start()
    try:
        # What comes before that is recorded, and does not wait.
        wait_until(lambda: "slurm_job_table" in inside(*at, shown, check=False), "the table is locked")
        slurm.slurm("for n in $(seq 110); do sbatch --parsable --uid=alice --output=/dev/null --hold --wrap true; done")
        slurm.slurm("scancel --state=pending")
        yield
    finally:
        kill = 'for at in /proc/[0-9]*; do ! grep -qa "^mariadb.*LOCK" $at/cmdline || kill ${at#/proc/}; done'
        inside(*at, kill)
        holder.join()


@contextmanager
def database_without_image(slurm: SlurmOnKubernetes) -> Iterator[None]:
    """Changed by hand, too."""
    here = ("-n", slurm.namespace)
    slurm.kubectl.run("set", "image", "statefulset/database", f"mariadbd={AWAY}", *here)
    try:
        yield
    finally:
        mend = Thread(target=slurm.up)  # it waits for the database
        mend.start()

        def is_mended() -> bool:
            (database,) = slurm.kubectl.items("statefulset", "database", *here)
            return bool(database["spec"]["template"]["spec"]["containers"][0]["image"] != AWAY)

        wait_until(is_mended, "the right image is applied")
        slurm.kubectl.run("delete", "pod", "database-0", *here)  # Kubernetes leaves the one that never got ready
        mend.join()


@contextmanager
def agent_that_ends(slurm: SlurmOnKubernetes) -> Iterator[None]:
    """The restart is told for a while, or until the pod is another one."""
    slurm.exec("controller-0", "sh", "-c", "kill -KILL $(pidof python3)", container="config-agent", check=False)
    try:
        yield
    finally:
        slurm.kubectl.run("delete", "pod", "controller-0", "-n", slurm.namespace)


SERVICES: dict[str, tuple[Callable[[SlurmOnKubernetes], AbstractContextManager[None]], str]] = {
    "munge": (without_munge, "slurmctld refuses everybody: munge does not work"),
    "slurmdbd": (silent_slurmdbd, "slurmdbd does not answer: .*"),
    "records": (locked_jobs, r"the database is behind: \d+ records of jobs wait in slurmctld"),
    "database": (database_without_image, r"pod database-0: mariadbd has no image: Kubernetes cannot pull it \(\w+\)"),
    "agent": (agent_that_ends, r"pod controller-0: config-agent restarts: \d times, the last with exit status 137 .*"),
}


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_that_fails_is_named_first_until_it_is_back(two_nodes: SlurmOnKubernetes, name: str) -> None:
    slurm, (fails, cause) = two_nodes, SERVICES[name]
    with fails(slurm):
        said: list[str] = []

        def told() -> bool:
            said[:] = [item["cause"] for item in doctor(slurm)[0]["findings"]]
            return bool(said) and bool(re.fullmatch(cause, said[0]))

        wait_until(told, f"{cause} is told first")
        assert name != "database" or "StatefulSet database was changed by hand" in said
    if name == "agent":  # that it was started again is what was found
        wait_until(lambda: not doctor(slurm)[0]["findings"], "nothing is found when it is over")
    await_nothing_found(slurm)
    slurm.await_idle("default-0", "default-1")


def test_another_stack_file_than_the_applied_one_is_told(two_nodes: SlurmOnKubernetes) -> None:
    slurm, applied = two_nodes, two_nodes.sections
    slurm.sections = with_change(applied, "slurm.settings.MessageTimeout", 33)
    try:
        assert first(slurm)["cause"] == "Slurm runs with another configuration than the stack file makes"
        slurm.sections = with_change(applied, "worker_nodes.default.resources.gpus", 1)
        assert re.fullmatch(r"node default-[01] has fewer GPUs than its pool promises", first(slurm)["cause"])
    finally:
        slurm.sections = applied
    assert findings(slurm) == []


def test_users_and_a_policy_that_could_not_be_made_are_told(two_nodes: SlurmOnKubernetes) -> None:
    """Each for what somebody has made by hand before: a user of the same number, a reservation of the same node."""
    slurm, applied = two_nodes, two_nodes.sections
    tomorrow = f"{datetime.now(UTC) + timedelta(days=1):%Y-%m-%dT08:00:00}"
    slurm.ssh("sudo useradd --uid 10077 byhand")
    slurm.slurm(f"scontrol create reservationname=byhand starttime={tomorrow} duration=60 nodes=default-0 users=root")
    course = {"start": tomorrow, "duration": "60", "nodes": ["default-0"], "users": ["alice"]}
    carol = {**applied["users"]["alice"], "uid": 10077, "sudo": False}
    slurm.sections = with_change({**applied, "reservations": {"course": course}}, "users.carol", carol)
    wanted = {
        "accounts, QOS and limits of the stack file were not written to the database",
        "the users of the stack file could not be made in the jail",
    }
    try:
        assert slurm.up(check=False).returncode != 0
        wait_until(lambda: {item["cause"] for item in findings(slurm)} == wanted, f"{wanted} are told")
    finally:
        slurm.sections = applied
        slurm.slurm("scontrol delete reservationname=byhand")
        slurm.ssh("sudo userdel byhand")
        slurm.up()
    assert findings(slurm) == []
