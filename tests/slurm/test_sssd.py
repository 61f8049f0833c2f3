"""Users of a real LDAP server (slapd, with TLS): the same for slurmctld, login, worker, jail and job, through SSSD."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.security.walk import SCRIPT, left_open, walked
from tests.slurm.cluster import ClusterFactory
from tests.slurm.directory import Directory
from tests.slurm.login import declare, ssh_to, start_client, start_login
from tests.slurm.minimal import IN_JAIL, minimal_config
from tests.slurm.pod import Pod, wait_until
from tests.slurm.sandbox import SlurmSandbox
from tests.slurm.worker_ssh import WorkerSsh

VERSION = "24.11"
"""Debian's suite with 26.05 has no SSSD."""

PARTITION = "EnforcePartLimits=ALL\nPartitionName=team Nodes=default State=UP AllowGroups=hpc"
PIPES = "/var/lib/sss/pipes"
ENV = {"SSSD_PIPES": PIPES}
LENA = "uid=25001(lena) gid=25001(lena) groups=25001(lena),26001(hpc)"


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmSandbox]:
    """LDAP users lena (in hpc, who may log in) and otto (not); alice is declared. SSSD in all pods that ask."""
    work = tmp_path_factory.mktemp("sssd")
    config = minimal_config(VERSION, **IN_JAIL)
    directory = Directory(work=work / "ldap", host="ldap-0")
    sandbox = slurm_cluster(VERSION, config=config, workers=0, jail=True)
    public = start_client(sandbox)
    directory.add_user("lena", 25001, public)
    directory.add_user("otto", 25002, public)
    directory.add_group("hpc", 26001, "lena")
    server = sandbox.add_pod("ldap-0", "jail", munged=False)
    directory.start(server)
    try:
        _start_cluster(sandbox, directory, work / "secret")
        yield sandbox
    finally:
        directory.stop()


def _start_cluster(sandbox: SlurmSandbox, directory: Directory, secret: Path) -> None:
    secret.mkdir()
    for name, content in directory.secret().items():
        (secret / name).write_bytes(content)

    def start_sssd(pod: Pod) -> None:
        shutil.copytree(secret, pod.root / "secrets/sssd")
        # Kubernetes makes a volume of the pod's own for everybody to write.
        pod.run(f"mountpoint --quiet {PIPES} || mount -t tmpfs -o mode=777 tmpfs {PIPES}")
        pod.start_program("sssd")
        wait_until((pod.root / "var/lib/sss/pipes/nss").exists, lambda: pod.log("sssd"))

    start_sssd(sandbox.controller)
    declare(sandbox, {"alice": 25003})
    workers = WorkerSsh(sandbox)
    workers.start_worker("default-0", PIPES, env=ENV, before=start_sssd)
    sandbox.wait_for_nodes(1)

    def prepare(login: Pod) -> None:
        workers.show_key(login)
        start_sssd(login)

    start_login(sandbox, before=prepare, **ENV)
    workers.start("default-0", **ENV)


def test_a_user_of_the_directory_is_the_same_everywhere(cluster: SlurmSandbox) -> None:
    found = {pod: cluster.run("id lena", pod=pod).stdout.strip() for pod in ("controller-0", "login-0", "default-0")}
    found |= {
        f"jail on {pod}": cluster.run(["chroot", "/jail", "id", "lena"], pod=pod).stdout.strip()
        for pod in ("login-0", "default-0")
    }

    assert found == dict.fromkeys(found, LENA)


def test_the_user_logs_in_with_the_key_in_the_directory_and_has_a_home(cluster: SlurmSandbox) -> None:
    code, out = ssh_to(cluster, "lena", "'id -un; pwd; stat -c %U:%G:%a .; ls -A'")

    assert code == 0, out + cluster.logs()
    assert out.split()[:3] == ["lena", "/home/lena", "lena:lena:700"]
    assert ".bashrc" in out.split()


def test_a_home_has_nothing_of_what_root_in_the_jail_cannot_read(cluster: SlurmSandbox) -> None:
    def in_jail(command: str) -> None:
        done = cluster.run(["chroot", "/jail", "sh", "-c", command], pod="login-0")
        assert done.returncode == 0, done.stderr

    in_jail("mv /home/lena /home/lena.old && mv /etc/skel /etc/skel.old && ln -s /secrets/ssh /etc/skel")
    try:
        assert ssh_to(cluster, "lena", "'pwd; ls -A'") == (0, "/home/lena\n.ssh\n")
    finally:
        in_jail("rm -r /home/lena /etc/skel; mv /etc/skel.old /etc/skel && mv /home/lena.old /home/lena")


def test_a_partition_for_a_group_of_the_directory_takes_its_members_only(cluster: SlurmSandbox) -> None:
    files = minimal_config(VERSION, PARTITION, **IN_JAIL)
    cluster.set_config(files)
    wait_until(lambda: "PartitionName=team" in cluster.run("scontrol -o show partition").stdout, cluster.logs)

    assert ssh_to(cluster, "lena", "srun -Q -p team id -un") == (0, "lena\n")
    assert "not permitted" in ssh_to(cluster, "alice", "srun -Q -p team id -un")[1]


def test_the_directory_s_access_rules_hold_and_declared_users_need_none(cluster: SlurmSandbox) -> None:
    code, out = ssh_to(cluster, "otto", "true")

    assert code != 0, out
    assert not (cluster.pods["client"].root / "jail/home/otto").exists()
    assert ssh_to(cluster, "alice", "id -un") == (0, "alice\n")


def test_ssh_to_the_node_of_a_job_is_for_those_of_the_directory_who_may_log_in(cluster: SlurmSandbox) -> None:
    jobs = {}
    for user in ("lena", "otto"):
        wrap = f"sbatch --parsable --uid={user} --gid={user} --chdir=/ --output=/dev/null --wrap 'sleep 1000'"
        jobs[user] = cluster.run(wrap).stdout.strip()
        cluster.wait_for_job(jobs[user], "RUNNING")

    look = "'id; pwd; squeue --me --steps --noheader --format=%i'"
    code, out = ssh_to(cluster, "lena", look, host="default-0")
    assert code == 0, out + cluster.logs()
    known, home, *steps = out.splitlines()
    assert (known, home) == (LENA, "/home/lena")
    assert any(step.startswith(f"{jobs['lena']}.") for step in steps), "it is in her job"
    assert ssh_to(cluster, "lena", "'ssh default-0 id'") == (0, f"{LENA}\n"), "also from a login node"

    code, out = ssh_to(cluster, "otto", "true", host="default-0")
    assert code == 255, out
    cluster.run(["scancel", *jobs.values()])
    cluster.wait_for_idle("default-0")


def test_the_secret_is_readable_for_nobody_but_root_and_not_in_a_log(cluster: SlurmSandbox) -> None:
    login = cluster.pods["login-0"]
    shown = login.run("stat -c '%a %U' /etc/sssd/sssd.conf /etc/sssd/secrets /etc/sssd/secrets/ca.crt").stdout

    assert shown.splitlines() == ["600 root", "700 root", "600 root"]
    assert "directory-password" not in cluster.logs()


@pytest.mark.parametrize("pod", ["login-0", "default-0"])
def test_the_directory_of_sssd_s_sockets_is_open_to_nobody(cluster: SlurmSandbox, pod: str) -> None:
    done = cluster.run(["python3", "-c", SCRIPT, "/jail"], pod=pod)

    assert not left_open(done.stdout)
    assert "/var/lib/sss/pipes" in walked(done.stdout)
