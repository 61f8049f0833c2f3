"""MariaDB's data directory, and what check-database says about a database that slurmdbd could not use."""

from __future__ import annotations

import subprocess
from base64 import b64encode

import pytest

from images.exporter.program import SLURMDBD
from slurm.certificates import SEED_BYTES, authority_certificate, server_certificate
from tests.slurm.accounting import (
    MEMORY_LIMIT,
    AccountingSandbox,
    BareSandbox,
    kill,
    password_binds,
    slurmdbd_binds,
    sql,
    start_accounting,
    start_database,
    wait_for_accounting,
    wait_for_database,
)
from tests.slurm.cluster import ClusterFactory
from tests.slurm.minimal import accounting_config
from tests.slurm.pod import LIBEXEC, Pod, wait_until
from tests.slurm.sandbox import SlurmSandbox

CHECK = f"{LIBEXEC}/check-database"
REFUSED = 2


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, slurm_version: str) -> AccountingSandbox:
    """A database that slurmdbd has used."""
    return slurm_cluster(slurm_version, workers=0, kind=AccountingSandbox)


@pytest.fixture
def alone(own_cluster: ClusterFactory, slurm_version: str) -> SlurmSandbox:
    """Pods for a database, and nothing else."""
    return own_cluster(slurm_version, kind=BareSandbox, config=accounting_config(slurm_version), workers=0)


def check(sandbox: SlurmSandbox, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run check-database in slurmdbd's pod, with other settings in slurmdbd.conf."""
    slurmdbd_binds(sandbox, **settings)
    try:
        return sandbox.run([CHECK, "--wait", "1"], pod="slurmdbd-0")
    finally:
        slurmdbd_binds(sandbox)


def test_a_wrong_password_is_named_and_not_shown(cluster: AccountingSandbox) -> None:
    (secret,) = password_binds(cluster)
    right = (secret / "password").read_text()
    (secret / "password").write_text("open-sesame")
    try:
        done = check(cluster)
    finally:
        (secret / "password").write_text(right)
    assert done.returncode == REFUSED
    assert "Access denied for user 'slurm'" in done.stdout
    assert "open-sesame" not in done.stdout + done.stderr


def test_slurmdbd_has_rights_in_its_own_database_only_and_root_only_on_the_socket(cluster: AccountingSandbox) -> None:
    grants = sql(cluster, "SHOW GRANTS FOR slurm")
    assert "GRANT USAGE ON *.*" in grants
    assert "GRANT ALL PRIVILEGES ON `slurm_acct_db`.* TO" in grants
    assert len(grants.splitlines()) == 2
    over_network = sql(cluster, "SELECT user FROM mysql.user WHERE host != 'localhost' AND user != 'PUBLIC'")
    assert over_network.split() == ["slurm"]
    root = cluster.run(["mariadb", "--no-defaults", "--host=database", "--user=root"], pod="slurmdbd-0")
    assert root.returncode != 0


def test_the_password_is_in_no_log_and_on_no_command_line(cluster: AccountingSandbox) -> None:
    (secret,) = password_binds(cluster)
    password = (secret / "password").read_text()
    assert password not in cluster.logs()
    for name in ("database", "slurmdbd-0"):
        assert password not in cluster.pods[name].run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout
    conf = cluster.pods["slurmdbd-0"].run("stat --format='%a %U' /run/slurmdbd/slurmdbd.conf").stdout
    assert conf.split() == ["600", "slurm"]


def start_again(pod: Pod) -> None:
    """Start MariaDB where it has ended."""
    pod.run(["rm", "--force", "/run/mysqld/probe.cnf"])
    pod.start_program("mariadbd", {"MEMORY_LIMIT": str(MEMORY_LIMIT)})
    wait_for_database(pod)


def test_slurmdbd_does_not_answer_the_exporter_s_question_without_its_database(cluster: AccountingSandbox) -> None:
    def is_up() -> bool:
        done = cluster.run(["timeout", "25", *SLURMDBD])
        return done.returncode == 0 and done.stdout.strip().endswith("UP")

    wait_until(is_up, cluster.logs)
    kill(cluster.pods["database"], "mariadbd")
    assert not is_up()
    start_again(cluster.pods["database"])
    wait_until(is_up, cluster.logs)


def test_a_first_start_that_is_killed_in_the_middle_begins_anew(alone: SlurmSandbox) -> None:
    pod = start_database(alone, wait=False)
    half_made = alone.work / "database-volume/data.new/mysql"
    wait_until(half_made.is_dir, lambda: pod.log("mariadbd"))
    alone.remove_pod("database")
    assert half_made.is_dir()
    assert not (alone.work / "database-volume/data").exists()
    start_database(alone)
    assert not half_made.exists()
    assert sql(alone, "SELECT COUNT(*) FROM mysql.user WHERE user = 'slurm'") == "1"


def test_data_of_an_older_mariadb_are_upgraded_and_those_of_a_newer_one_refused(alone: SlurmSandbox) -> None:
    pod = start_database(alone)
    note = alone.work / "database-volume/data/slurmstack-version"
    ours = note.read_text()
    note.write_text("10.11.2\n")
    kill(pod, "mariadbd")
    start_again(pod)
    assert "the data are up to date" in pod.log("mariadbd")
    assert note.read_text() == ours
    kill(pod, "mariadbd")
    note.write_text("99.1.0\n")
    assert pod.start_program("mariadbd", {"MEMORY_LIMIT": str(MEMORY_LIMIT)}).wait(60) == REFUSED
    assert "the data are of MariaDB 99.1.0, and this image has" in pod.log("mariadbd")


def test_tls_with_an_authority_of_ones_own(alone: SlurmSandbox) -> None:
    """As with an external server: it accepts nothing but TLS, with a certificate that names its host."""
    ours, other = (b64encode(bytes([number]) * SEED_BYTES).decode() for number in (1, 2))
    server_cert = server_certificate(ours, "external", ["database"])
    pod = start_database(alone)
    kill(pod, "mariadbd")
    (pod.root / "run/mysqld/server.crt").write_text(server_cert.certificate)
    (pod.root / "run/mysqld/server.key").write_text(server_cert.private_key)
    arguments = ["--ssl-cert=/run/mysqld/server.crt", "--ssl-key=/run/mysqld/server.key", "--require-secure-transport"]
    server = ["/usr/sbin/mariadbd", "--defaults-file=/run/mysqld/my.cnf", "--user=mysql", *arguments]
    with (pod.work / "external.log").open("wb") as log:
        pod.processes.append(subprocess.Popen(pod.command(server), stdout=log, stderr=log))
    ca = alone.work / "ca"
    ca.mkdir()
    (ca / "ca.crt").write_text(authority_certificate(other, "external"))
    parameters = {"StorageParameters": "SSL_CA=/run/slurmstack/keys/database-ca.crt"}
    slurmdbd = start_accounting(alone, wait=False, binds={ca: "/secrets/database-ca"}, **parameters)
    assert slurmdbd.processes[-1].wait(60) == REFUSED
    assert "SSL error" in slurmdbd.log("slurmdbd")
    (ca / "ca.crt").write_text(authority_certificate(ours, "external"))
    slurmdbd.start_program("slurmdbd")
    wait_for_accounting(alone)
