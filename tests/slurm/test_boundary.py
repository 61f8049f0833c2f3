"""Between users of the jail and everybody else: what they may write, become and do; with real daemons.

The same on real Kubernetes: tests/e2e/test_boundary.py.
"""

from __future__ import annotations

import os
from shlex import quote

import pytest

from config import load_config
from tests import stacks
from tests.security.attempts import EVERYWHERE, OF_USERS, Where
from tests.security.scene import Scene, set_scene
from tests.security.walk import SCRIPT, left_open, walked
from tests.slurm.cluster import ClusterFactory
from tests.slurm.login import declare, ssh_to, start_client, start_login
from tests.slurm.minimal import IN_JAIL, identity, lines_of, minimal_config
from tests.slurm.pod import wait_until
from tests.slurm.sandbox import SlurmSandbox

UIDS = {"alice": 25201, "bob": 25202}
SETPCAP, SYS_ADMIN = 8, 21
OF_HELPER = 1 << SYS_ADMIN | 1 << 0 | 1 << 1 | 1 << 3
"""And CHOWN, DAC_OVERRIDE and FOWNER, to make the directories of jobs."""
SIGPIPE, SIGXFSZ = 13, 25


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, slurm_version: str) -> SlurmSandbox:
    """A worker and a login node with their real capabilities. Alice has sudo, bob has not."""
    bounds = ("SlurmctldParameters", "SlurmdParameters", "DisableRootJobs", "PropagateResourceLimits")
    extra = lines_of(load_config(stacks.dev()), "Prolog", "Epilog", *bounds)
    config = minimal_config(slurm_version, extra, **IN_JAIL, **identity(UIDS))
    sandbox = slurm_cluster(slurm_version, config=config, workers=1, jail=True)
    start_client(sandbox)
    declare(sandbox, UIDS, sudo="alice")
    start_login(sandbox)
    return sandbox


def shell(cluster: SlurmSandbox, user: str, command: str) -> str:
    """What a command prints that a user runs on the login node, in the jail."""
    (cluster.jail / f"home/{user}/.command").write_text(command)
    code, out = ssh_to(cluster, user, "bash .command")
    assert code == 0, f"{command}: {out}\n{cluster.logs()}"
    return out


@pytest.fixture(scope="module")
def scene(cluster: SlurmSandbox) -> Scene:
    return set_scene(lambda user, command: shell(cluster, user, command))


@pytest.mark.in_gate
@pytest.mark.parametrize("where", EVERYWHERE)
def test_what_a_hostile_user_tries_is_refused(scene: Scene, where: Where) -> None:
    wrong = scene.attack(where)

    assert not wrong, "\n".join(wrong)


@pytest.mark.in_gate
@pytest.mark.parametrize(
    ("pod", "shown"), [("login-0", {"/run/slurm"}), ("default-0", {"/run/slurm", "/var/spool/slurmd"})]
)
def test_nothing_that_is_bound_into_the_jail_is_open_to_others(
    cluster: SlurmSandbox, scene: Scene, pod: str, shown: set[str]
) -> None:
    done = cluster.run(["python3", "-c", SCRIPT, "/jail"], pod=pod)

    assert done.returncode == 0, done.stderr
    assert not left_open(done.stdout)
    assert walked(done.stdout) >= {"/run/munge", "/tmp", "/dev", "/dev/shm", *shown}, "the walk saw what it is for"


STATUS = "grep -E 'CapBnd|SigIgn' /proc/self/status"
TO_FILE = f"printf '%s\\n' '#!/bin/sh' \"{STATUS} > ~/told\" > script; chmod 755 script; rm -f told"
KINDS = {
    "login": STATUS,
    "step": f"srun -Q {STATUS}",
    "batch": f'sbatch -Q --wait --output=told --wrap "{STATUS}" && cat told',
    "interactive": f"salloc -Q srun -Q --interactive --preserve-env {STATUS}",
    "task prolog": f"{TO_FILE}; srun -Q --task-prolog=$PWD/script true; cat told",
}
"""How processes of users come about."""


@pytest.mark.in_gate
@pytest.mark.parametrize("kind", KINDS)
def test_no_process_of_a_user_can_become_more_than_root_in_the_jail(cluster: SlurmSandbox, kind: str) -> None:
    told = dict(line.split() for line in shell(cluster, "alice", KINDS[kind]).splitlines())

    assert told["CapBnd:"] == OF_USERS
    ignored = int(told["SigIgn:"], 16)
    assert not ignored & (1 << SIGXFSZ - 1)
    assert not ignored & (1 << SIGPIPE - 1)


@pytest.mark.in_gate
@pytest.mark.parametrize("pod", ["login-0", "default-0"])
def test_the_daemons_have_given_up_what_set_the_pod_up(cluster: SlurmSandbox, scene: Scene, pod: str) -> None:
    """Also those with whom a user talks, and slurmstepd, which loads plugins from the jail. But for the helper."""
    done = cluster.run("cat /proc/[0-9]*/task/*/status | grep -E '^(Name|CapPrm|CapBnd)'", pod=pod)
    words = done.stdout.split()
    found = [(words[i + 1], int(words[i + 3], 16), int(words[i + 5], 16)) for i in range(0, len(words), 6)]
    has = {name for name, permitted, _ in found if permitted >> SYS_ADMIN & 1}
    helpers = [masks for name, *masks in found if name == "helper"]

    assert has - {"bash", "cat", "grep"} == {"login-0": set(), "default-0": {"helper"}}[pod], "and this look itself"
    assert helpers == [[OF_HELPER, OF_HELPER]] * {"login-0": 0, "default-0": 2}[pod]
    assert {"login-0": "sshd", "default-0": "slurmstepd"}[pod] in done.stdout


THREADS = """
for step in $(pgrep -x slurmstepd); do
    case $(readlink /proc/$step/root) in
        /run/slurmstack/job-mounts/*) cat /proc/$step/task/*/status | grep -E '^Cap(Prm|Bnd)' ;;
    esac
done; :
"""


def test_no_thread_of_a_step_keeps_what_leads_out_of_the_jail(cluster: SlurmSandbox) -> None:
    """Root in the jail can have it load a library, as PMIx does: what that wrote outside, the next start trusted."""
    job = running(cluster, "alice", "sleep 100")
    # For Slurm it runs before anything of it does.
    wait_until(lambda: cluster.run("pgrep -fx 'sleep 100'", pod="default-0").returncode == 0, cluster.logs)
    told = [line.split() for line in cluster.run(THREADS, pod="default-0").stdout.splitlines()]
    cluster.run(f"scancel {job}")

    assert len(told) > 2 * 3, "slurmstepd has several threads"
    of_users, and_not_looked_into = int(OF_USERS, 16), 1 << SETPCAP
    assert {mask for name, mask in told if name == "CapBnd:"} == {OF_USERS}
    assert {int(mask, 16) for name, mask in told if name == "CapPrm:"} == {of_users | and_not_looked_into}


def running(cluster: SlurmSandbox, user: str, command: str) -> str:
    """Number of a job of one CPU that runs, on the only node."""
    job = shell(cluster, user, f"sbatch --parsable -n1 --output=%j.out --wrap 'exec {command}'").strip()
    wait_until(lambda: "R" in cluster.run(f"squeue --noheader --format=%t --jobs={job}").stdout, cluster.logs)
    return job


def test_slurmctld_starts_no_program_of_a_trigger(cluster: SlurmSandbox) -> None:
    """Root in the jail can be SlurmUser, and it would run beside the keys of all."""
    job = shell(cluster, "alice", "sbatch --parsable --hold --output=/dev/null --wrap true").strip()
    as_slurm = "setpriv --reuid=64030 --regid=64030 --clear-groups"
    done = cluster.run(f"{as_slurm} strigger --set --jobid={job} --fini --program=/usr/bin/true && scancel {job}")
    assert done.returncode == 0, done.stderr
    refused = "type=job:fini exit=1:0"  # /usr/bin/true ends with 0
    wait_until(lambda: refused in cluster.controller.log("slurmctld"), cluster.logs)


def test_a_job_with_the_user_s_login_environment_runs_and_its_start_up_files_ran_in_the_jail(
    cluster: SlurmSandbox,
) -> None:
    """slurmd wanted namespaces for it, which it may not make, and ended with all jobs of its node.

    What they start ends with them: it was in no job, and could open all devices of the node.
    """
    profile = f"export AT_LOGIN=here\n{STATUS} >~/at-login\nsetsid sleep 4321 &\n"
    (cluster.jail / "home/alice/.profile").write_text(profile)
    try:
        look = 'env; pgrep -f "sleep 432[1]" && echo LIVES=on; true'
        env = f"sbatch -Q --wait --export=NONE --output=told --wrap '{look}' && cat told"
        told = shell(cluster, "alice", env).splitlines()
    finally:
        (cluster.jail / "home/alice/.profile").unlink()
    assert {"AT_LOGIN=here", "HOME=/home/alice"} <= set(told)
    assert "LIVES=on" not in told
    assert OF_USERS in (cluster.jail / "home/alice/at-login").read_text()


def test_a_file_that_others_may_write_stays_theirs_when_sbcast_writes_it(cluster: SlurmSandbox) -> None:
    """As root, slurmd gave it to the sender: /dev/null, too."""
    shared = cluster.jail / "var/tmp/shared"
    shared.write_text("bob\n")
    shared.chmod(0o666)
    os.chown(shared, UIDS["bob"], UIDS["bob"])
    own = "sbcast --force sent /tmp/own && srun -Q stat -c '%u %g %a' /tmp/own"
    command = f'echo >sent && chmod 640 sent && salloc -Q sh -c "sbcast --force sent /var/tmp/shared; {own}"'
    try:
        assert shell(cluster, "alice", command).split() == [str(UIDS["alice"]), str(UIDS["alice"]), "640"]
        status = shared.stat()
    finally:
        shared.unlink()
    assert (status.st_uid, status.st_mode & 0o777) == (UIDS["bob"], 0o666)


OPEN = range(3, 30)
"""Numbers of descriptors that slurmstepd and slurmd have, and some beyond."""


def test_no_path_of_a_user_s_goes_by_what_the_daemons_have_open(cluster: SlurmSandbox) -> None:
    """slurmstepd has the pod's cgroups open when it is in the jail already: from there it went up to the pod's root."""
    each = f"for n in {{{OPEN[0]}..{OPEN[-1]}}}; do srun -Q --chdir=/proc/self/fd/$n/../../.. pwd -P; done"
    told = shell(cluster, "alice", f"(salloc -Q bash -c {quote(each)}) 2>/dev/null").split()
    assert told == ["/tmp"] * len(OPEN), "where Slurm goes instead"


def test_sbcast_writes_nothing_by_what_slurmd_has_open_and_nothing_into_memory(cluster: SlurmSandbox) -> None:
    """What it writes is slurmd's own memory, where a file system is memory: it would end slurmd, and others' jobs."""
    ways = [*(f"/proc/self/fd/{n}/../../../tmp/sent" for n in OPEN), "/dev/shm/sent"]
    send = "; ".join(f"sbcast --force sent {way} && echo sent {way}" for way in ways)
    look = "sbcast sent /tmp/sent && srun -Q cat /tmp/sent"
    told = shell(cluster, "alice", f"echo in /tmp >sent; salloc -Q -n1 sh -c '({send}) 2>said; {look}'; cat said")
    assert told.splitlines()[0] == "in /tmp", "and no way was gone"
    assert told.count("Operation not supported") == 1
    assert not cluster.run("ls /tmp | grep sent", pod="default-0").stdout


ASK = """
import os, socket, struct, sys, time
BATCH, NEWEST, TERMINATE = 0xFFFFFFFB, 1 << 16, 12  # stepd_api.h; a version above all is taken
own, of = os.environ["SLURM_JOB_ID"], 1 - int(os.environ["SLURM_STEP_ID"])
for whose, step in (("bob", f"{sys.argv[1]}.{BATCH}"), ("alice", f"{own}.{of}")):
    path = f"/var/spool/slurmd/default-0_{step}"
    for _ in range(100):
        if os.path.exists(path):
            break
        time.sleep(0.1)
    with socket.socket(socket.AF_UNIX) as stepd:
        stepd.settimeout(60)
        stepd.connect(path)
        stepd.sendall(struct.pack("=i", NEWEST))
        assert len(stepd.recv(4, socket.MSG_WAITALL)) == 4
        stepd.sendall(struct.pack("=i", TERMINATE))
        said = stepd.recv(8, socket.MSG_WAITALL)
        print(whose, *(struct.unpack("=ii", said) if len(said) == 8 else ("closed",)), flush=True)
"""
"""Asks slurmstepd to end bob's step, and then a step of alice's own, in Slurm's own words: both have open sockets.

That of 26.05 hangs up on a stranger, and one that ends may be gone before it has answered.
"""


def test_a_step_s_socket_takes_orders_of_its_user_alone(cluster: SlurmSandbox, scene: Scene) -> None:
    (cluster.jail / "home/alice/ask.py").write_text(ASK)
    steps = f"srun -Q --overlap sleep 600 2>/dev/null & srun -Q --overlap python3 ask.py {scene.bob_job}; wait"
    told = shell(cluster, "alice", f"salloc -Q -n1 sh -c {quote(steps)}").splitlines()

    # It has returned, so her own step of ten minutes has ended.
    assert {"bob -1 1", "bob closed"}.intersection(told), told
    assert {"alice 0 0", "alice closed"}.intersection(told), told
    assert cluster.job(scene.bob_job)["JobState"] == "RUNNING"


def test_what_users_set_makes_slurmstepd_write_no_file(cluster: SlurmSandbox) -> None:
    if "pmix" not in shell(cluster, "alice", "srun --mpi=list 2>&1"):
        return
    look = "srun -Q sh -c 'ls /tmp | grep -c pmix-output; :'"
    assert shell(cluster, "alice", f"PMIX_DEBUG=100 srun -Q --mpi=pmix true; {look}").strip() == "0"
