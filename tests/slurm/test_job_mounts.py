"""Each job has its own /tmp and /dev/shm in the jail, and a helper that makes them, with real daemons.

And `srun --user-namespace`: containers in jobs of a pool that allows it, and what stays closed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from shlex import quote

import pytest

from config import load_config
from tests import stacks
from tests.slurm.cluster import ClusterFactory
from tests.slurm.conftest import one_version
from tests.slurm.minimal import IN_JAIL, add_accounts, identity, lines_of, minimal_config
from tests.slurm.pod import Pod, wait_until
from tests.slurm.sandbox import SlurmSandbox
from tests.stacks import ROOT

UID = 10001
NODE = "default-0"
AS_ALICE = f"setpriv --reuid={UID} --regid={UID} --groups=20001 env HOME=/tmp USER=alice"
HERE = f"srun -Q -n1 --nodelist={NODE} --chdir=/tmp"
INSIDE = f"{HERE} --user-namespace"
IS_ROOT = "unshare -Ur id -u"


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, slurm_version: str) -> SlurmSandbox:
    """One worker with the jail and containers, in which many jobs of alice's fit. She asks from the controller."""
    known = identity({"alice": UID})
    known["group"] += "team:x:20001:alice\n"
    # A requeued job waits for so long (slurm.conf(5), AuthInfo); the default is two minutes.
    extra = lines_of(load_config(stacks.dev()), "Prolog", "Epilog") + "AuthInfo=cred_expire=10\n"
    config = minimal_config(slurm_version, extra, **IN_JAIL, **known)
    sandbox = slurm_cluster(
        slurm_version, config=config, workers=0, jail=True, node_conf="CPUs=8 RealMemory=1000 Feature=default"
    )
    add_accounts(known, sandbox.jail, sandbox.controller.root)
    sandbox.start_worker_on(NODE, env={"CONTAINERS": "yes"})
    sandbox.wait_for_nodes(1)
    return sandbox


@pytest.fixture(autouse=True)
def nothing_left(cluster: SlurmSandbox) -> Iterator[None]:
    """Whatever a test does, of its jobs nothing is there afterwards."""
    yield
    cluster.run("scancel --user=alice")
    wait_until(lambda: not cluster.run("squeue --noheader").stdout.strip(), cluster.logs)
    wait_until(lambda: left(cluster) == [], lambda: f"{left(cluster)}\n{cluster.logs()}")
    if "DRAIN" in cluster.node_states()[NODE]:
        cluster.run(f"scontrol update nodename={NODE} state=resume")
    cluster.wait_for_idle(NODE)


def worker(cluster: SlurmSandbox) -> Pod:
    return cluster.pods[NODE]


def alice(cluster: SlurmSandbox, command: str, *, fails: bool = False) -> str:
    """What a command of alice's prints, which is there at the controller."""
    done = cluster.run(f"cd /tmp; exec {AS_ALICE} bash -c {quote(command)} 2>&1")
    assert (done.returncode != 0) == fails, f"{command}: {done.stdout}{done.stderr}\n{cluster.logs()}"
    return done.stdout


def start(cluster: SlurmSandbox, command: str = "sleep 1000") -> str:
    """A job of one CPU; its number once it runs."""
    asked = f'sbatch --parsable -n1 --output=/dev/null --chdir=/ --wrap "{command}"'
    job = alice(cluster, asked).strip()
    wait_until(lambda: "R" in cluster.run(f"squeue --noheader --format=%t --jobs={job}").stdout, cluster.logs)
    wait_until((worker(cluster).root / f"run/slurmstack/job-mounts/{job}").exists, cluster.logs)
    return job


def within(cluster: SlurmSandbox, job: str, command: str) -> str:
    """What a command prints as another step of a job."""
    return alice(cluster, f'srun -Q --jobid={job} --overlap -n1 --chdir=/ bash -c "{command}"')


def left(cluster: SlurmSandbox) -> list[str]:
    """What of any job is on the node."""
    directories = "ls -A /run/slurmstack/job-mounts /tmp/jobs"
    processes = f"pgrep -l -u {UID}; pgrep -lx namespaces"
    done = cluster.run(f"{directories}; grep job-mounts /proc/self/mountinfo; ls -A /dev/shm; {processes}", pod=NODE)
    return [line for line in done.stdout.split("\n") if line and not line.endswith(":")]


@pytest.mark.in_gate
def test_jobs_of_a_user_see_nothing_of_each_other(cluster: SlurmSandbox) -> None:
    first, second = start(cluster), start(cluster)
    assert left(cluster).count(first) == 2, "what looks for something left does see it"
    for place in ("/tmp", "/dev/shm"):
        within(cluster, first, f"echo first > {place}/file")
        assert within(cluster, second, f"ls -A {place}") == ""
        within(cluster, second, f"echo second > {place}/file")
        assert within(cluster, first, f"cat {place}/file") == "first\n"
        assert not (worker(cluster).root / place.lstrip("/") / "file").exists()
    alice(cluster, f"scancel {first}")
    wait_until(lambda: not (worker(cluster).root / f"run/slurmstack/job-mounts/{first}").exists(), cluster.logs)
    assert within(cluster, second, "cat /tmp/file /dev/shm/file") == "second\n" * 2


def test_what_sbcast_sends_is_where_the_job_looks_for_it(cluster: SlurmSandbox) -> None:
    """Also before the first step, when the prolog has not run yet."""
    send = "echo sent > file; sbcast --force file /tmp/file"
    look = 'srun -Q -n1 --chdir=/ bash -c "cat /tmp/file; stat -c %U /tmp/file"'
    script = f"{send}; {look}; {send.replace('sent', 'again')}; {look}"
    worker_tmp = worker(cluster).root / "tmp/file"
    cluster.run(f"printf '%s\\n' '{script}' > /tmp/script; chmod 755 /tmp/script")
    told = alice(cluster, "mkdir -p /tmp/of-alice; cd /tmp/of-alice; salloc -Q -n1 bash /tmp/script")
    assert told.split() == ["sent", "alice", "again", "alice"]
    assert not worker_tmp.exists()


def test_a_step_whose_job_mount_cannot_be_made_fails_and_the_log_says_why(cluster: SlurmSandbox) -> None:
    """And never runs elsewhere: with 24.11 it ran in the pod itself, outside the jail, whatever had failed."""
    before = worker(cluster).log("slurmd")
    following = int(start(cluster)) + 1
    in_place = f"/run/slurmstack/job-mounts/{following}"
    cluster.run(f"touch {in_place}", pod=NODE)
    try:
        told = alice(cluster, "srun -Q -n1 --chdir=/ touch /tmp/was-here", fails=True)
    finally:
        cluster.run(f"rm {in_place}", pod=NODE)
    assert not (worker(cluster).root / "tmp/was-here").exists()
    log = worker(cluster).log("slurmd")[len(before) :]
    assert f"File exists: '{in_place}'" in log, f"{told}\n{log}"


@pytest.mark.in_gate
def test_what_a_job_leaves_goes_with_its_job_mount(cluster: SlurmSandbox) -> None:
    fill = "dd if=/dev/zero of=/dev/shm/left bs=1M count=5; touch /tmp/left; setsid --fork sleep 1000"
    alice(cluster, f'srun -Q -n1 --chdir=/ bash -c "{fill}"')
    wait_until(lambda: left(cluster) == [], lambda: f"{left(cluster)}\n{cluster.logs()}")
    wait_until(lambda: cluster.run("pgrep -x sleep -u alice", pod=NODE).returncode != 0, cluster.logs)


@pytest.mark.in_gate
def test_a_requeued_job_begins_with_an_empty_job_mount(cluster: SlurmSandbox) -> None:
    job = start(cluster)
    within(cluster, job, "touch /tmp/file /dev/shm/file")
    cluster.run(f"scontrol requeue {job}")
    runs = f"squeue --noheader --format=%t --jobs={job}"
    wait_until(lambda: "R" not in cluster.run(runs).stdout, cluster.logs)
    wait_until(lambda: left(cluster) == [], cluster.logs)
    cluster.wait_for_start(job)
    wait_until(lambda: within(cluster, job, "ls -A /tmp /dev/shm").split() == ["/dev/shm:", "/tmp:"], cluster.logs)


def test_many_jobs_at_once(cluster: SlurmSandbox) -> None:
    """Job mounts come and go beside each other."""
    check = r"[ -z \"\$(ls -A /tmp /dev/shm | grep -v :)\" ] && echo \$SLURM_JOB_ID > /tmp/mine && sleep 0.2 && "
    check += r"[ \$(cat /tmp/mine) = \$SLURM_JOB_ID ]"
    alice(cluster, f'sbatch -Q --wait -n1 --array=1-40 --output=/dev/null --chdir=/ --wrap "{check}"')
    spool = worker(cluster).root / "var/spool/slurmd"
    wait_until(lambda: left(cluster) == [], cluster.logs)
    of_steps = re.compile(r"hwloc_topo_\d|default-0_\d|job\d")
    assert not [path.name for path in spool.iterdir() if of_steps.match(path.name)]


def inside(cluster: SlurmSandbox, script: str, *, options: str = "") -> str:
    """What a script of alice's prints as a task with the option."""
    return alice(cluster, f"{INSIDE} {options} bash -c {quote(script)}")


def nested(cluster: SlurmSandbox, script: str) -> str:
    """What a script prints that has all rights in a user namespace of its own, below the task's."""
    return inside(cluster, f"unshare -Ur --mount bash -c {quote(script)} 2>&1; true")


WAYS = {
    "step": f"{INSIDE} {IS_ROOT}",
    "batch": f"sbatch -Q --wait -n1 -w {NODE} --chdir=/tmp -o /jail-told --user-namespace --wrap '{IS_ROOT}'",
    "interactive": f"salloc -Q -n1 -w {NODE} srun -Q --interactive --chdir=/ --user-namespace {IS_ROOT}",
}
"""How tasks come about. A batch job's output is a file of the jail."""


@pytest.mark.parametrize("way", WAYS)
def test_a_task_makes_user_namespaces(cluster: SlurmSandbox, way: str) -> None:
    told = cluster.jail / "jail-told"
    told.touch()
    told.chmod(0o666)
    shown = alice(cluster, WAYS[way])
    assert (told.read_text() if "jail-told" in WAYS[way] else shown).split()[-1] == "0"
    told.unlink()


def test_the_task_is_the_user_and_has_no_right_more(cluster: SlurmSandbox) -> None:
    look = "id -u -n; id -g; pwd; grep -E 'Cap(Inh|Prm|Eff|Amb)|Seccomp:' /proc/self/status; ls /proc/self/fd"
    plain = alice(cluster, f"{HERE} bash -c {quote(look)}").splitlines()
    assert inside(cluster, look).splitlines() == plain, "its numbers, rights, directory and open files are the same"
    assert plain[:3] == ["alice", "10001", "/tmp"]


def test_slurm_s_own_way_is_refused_and_not_ignored(cluster: SlurmSandbox) -> None:
    told = alice(cluster, f"{HERE} --container=/tmp/bundle id", fails=True)
    assert "there is no --container here; see --user-namespace" in told


PROGRAMS = """
set -e
export LC_ALL=C
mkdir -p /tmp/image/bin /tmp/data && cd /tmp && echo kept > data/file && echo "of the image" > image/name
programs="/bin/bash /bin/cat /bin/ls /usr/bin/id /usr/bin/env"
for file in $programs $(ldd $programs | grep -o '/[^ ]*' | grep -v : | sort -u); do
    cp --parents --dereference $file image
done
"""
"""A root file system with a few programs."""


def test_a_command_runs_in_an_unpacked_image_by_the_example(cluster: SlurmSandbox) -> None:
    """Without what the jail has, as the user, with the job's /proc, /dev and /tmp and what the user names."""
    there = cluster.jail / "usr/local/bin/in-image"
    there.write_bytes((ROOT / "examples/containers/in-image").read_bytes())
    there.chmod(0o755)
    look = "id; pwd; cat /name data/file /etc/resolv.conf; ls /; echo > /dev/null; echo new > /tmp/new; env"
    script = f"""
        {PROGRAMS}
        in-image /tmp/image bash -c {quote(look)}
        cat new; in-image image bash -c "exit 1" || echo "status $?"
        in-image /tmp/data true || echo "status $?"; in-image | cat; in-image image nothing-there || echo "status $?"
    """
    told = inside(cluster, script, options="--export=ALL,IN_IMAGE_BIND=/home").splitlines()
    assert told[:4] == ["uid=10001 gid=10001 groups=10001,65534", "/tmp", "of the image", "kept"], told
    listed = told[told.index("bin") :]
    assert {"bin", "dev", "home", "proc", "sys", "tmp"} <= {*listed}
    assert not {"root", "opt", "srv"} & {*listed}
    assert "IN_IMAGE_USER" not in " ".join(told)
    assert {"new", "status 1", "status 2", "status 127"} <= {*listed}, told
    assert any("is no root file system" in line for line in told)
    assert any("srun --user-namespace in-image DIRECTORY" in line for line in told)


REVEAL = (
    "umount -l /tmp", "umount -l /dev/shm", "umount -l /proc", "umount -l /", "umount -l /sys/fs/cgroup",
    "mount --move /tmp /mnt", "mount --bind / /mnt && ls /mnt/tmp", "mount -o remount,bind,rw /run/slurm",
    "mount -o remount,bind,rw /sys/fs/cgroup", "mount -t cgroup2 none /mnt", "mount -t devtmpfs none /mnt",
    "mkdir -p r && mount --rbind / r && mkdir -p /tmp/o && umount -l r/tmp",
    "nsenter --mount=/proc/1/ns/mnt true", "echo 1 > /proc/sys/kernel/panic", "mknod n b 8 0",
    "mkdir /sys/fs/cgroup/x", "swapon /etc/passwd", "chroot /proc/1/root true",
)  # fmt: skip
"""What root of a user namespace tries to see what is below, or beside, or the machine's."""


@one_version
def test_root_of_a_namespace_reveals_nothing(cluster: SlurmSandbox) -> None:
    tries = "\n".join(f"( {line} ) >/dev/null 2>&1 && echo {quote(line)}" for line in REVEAL)
    assert nested(cluster, f"mount -t tmpfs none /mnt && umount /mnt && echo works\n{tries}") == "works\n"


def test_what_is_left_in_them_ends_with_the_job(cluster: SlurmSandbox) -> None:
    """`nothing_left` looks for the processes, and for the job's mount."""
    daemons = "setsid --fork sleep 1000; setsid --fork unshare -Ur sleep 1000"
    nested(cluster, f"mount -t tmpfs none /mnt; fallocate -l 5M /mnt/x; {daemons}")


@pytest.mark.parametrize(
    ("options", "said"),
    [("--output=/nowhere/%j.out", "/nowhere/{job}.out"), ("--output=/etc/%j.out", "/etc/{job}.out")],
)
def test_why_a_job_never_ran_is_in_the_log_of_its_node(cluster: SlurmSandbox, options: str, said: str) -> None:
    """slurmstepd alone knows it, and slurmd closes its standard error."""
    job = alice(cluster, f"sbatch --parsable --nodelist={NODE} {options} --wrap true").strip()

    def words() -> list[str]:
        return [line for line in worker(cluster).log("slurmd").splitlines() if f"[{job}.batch]" in line]

    wait_until(lambda: any(said.format(job=job) in line for line in words()), cluster.logs)


@one_version
def test_that_a_job_ran_elsewhere_than_it_asked_is_in_the_log_of_its_node(cluster: SlurmSandbox) -> None:
    """26.05 does not say it there."""
    options = "--output=/dev/null --chdir=/nowhere"
    test_why_a_job_never_ran_is_in_the_log_of_its_node(cluster, options, "couldn't chdir to `/nowhere'")


def test_no_user_writes_into_the_log_of_a_node_in_the_name_of_slurmstepd(cluster: SlurmSandbox) -> None:
    fake = "<27>Nov 30 00:00:00 slurmstepd[1]: error: [1.batch] of alice"
    send = f"import socket; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'{fake}', '/dev/log')"
    alice(cluster, f'{HERE} python3 -c "{send}"')
    test_why_a_job_never_ran_is_in_the_log_of_its_node(cluster, "--output=/no/%j.out", "/no/{job}.out")
    assert "of alice" not in worker(cluster).log("slurmd")
