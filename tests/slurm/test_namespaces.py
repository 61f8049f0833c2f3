"""`srun --user-namespace`: containers in jobs of a pool that allows it, with real daemons. And what stays closed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from shlex import quote

import pytest

from config import load_config
from tests import stacks
from tests.openmpi import start_parallel
from tests.slurm.cluster import ClusterFactory
from tests.slurm.conftest import one_version
from tests.slurm.minimal import TOKENS, lines_of, minimal_config
from tests.slurm.pod import wait_until
from tests.slurm.sandbox import SlurmSandbox
from tests.stacks import ROOT

PLUGSTACK = "required /usr/lib/slurmstack/jail.so root=/jail\n"
USERS = {"alice": 10001, "bob": 10002}
ALLOWED, OTHER = "default-0", "default-1"
HERE = f"srun -Q -n1 --nodelist={ALLOWED} --chdir=/tmp"
INSIDE = f"{HERE} --user-namespace"
IS_ROOT = "unshare -Ur id -u"


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, slurm_version: str) -> SlurmSandbox:
    """A worker of a pool that allows containers, and one of a pool that does not. Users ask from the controller."""
    known = {
        "passwd": "".join(f"{name}:x:{uid}:{uid}::/home/{name}:/bin/bash\n" for name, uid in USERS.items()),
        "group": "".join(f"{name}:x:{uid}:\n" for name, uid in USERS.items()) + "team:x:20001:alice\n",
    }
    extra = lines_of(load_config(stacks.dev()), *TOKENS, "Prolog", "Epilog")
    config = minimal_config(slurm_version, extra, **{"plugstack.conf": PLUGSTACK}, **known)
    node_conf = "CPUs=8 RealMemory=1000 Feature=default"
    sandbox = slurm_cluster(slurm_version, config=config, workers=0, jail=True, node_conf=node_conf)
    for name, text in known.items():
        for root in (sandbox.jail, sandbox.controller.root):
            with (root / "etc" / name).open("a") as file:
                file.write(text)
    sandbox.start_worker_on(ALLOWED, env={"CONTAINERS": "yes"})
    sandbox.start_worker_on(OTHER)
    sandbox.wait_for_nodes(2)
    return sandbox


@pytest.fixture(autouse=True)
def nothing_left(cluster: SlurmSandbox) -> Iterator[None]:
    """Whatever a test does: of its jobs nothing is there afterwards, and no node is drained."""
    yield
    cluster.run("scancel --user=alice; scancel --user=bob")
    wait_until(lambda: not cluster.run("squeue --noheader").stdout.strip(), cluster.logs)
    for node in (ALLOWED, OTHER):
        wait_until(lambda node=node: left(cluster, node) == "", lambda: f"{cluster.logs()}")  # type: ignore[misc]
    assert not any("DRAIN" in states for states in cluster.node_states().values()), cluster.logs()


def left(cluster: SlurmSandbox, node: str) -> str:
    """What of any job is on a node."""
    look = "ls -A /run/slurmstack/cells; grep -o '/run/slurmstack/cells.*' /proc/self/mountinfo; pgrep -l -u alice,bob"
    return cluster.run(f"{look}; pgrep -lx namespaces", pod=node).stdout


def ask(cluster: SlurmSandbox, command: str, *, user: str = "alice", fails: bool = False) -> str:
    """What a command of a user's prints at the controller."""
    uid = USERS[user]
    groups = "--groups=20001" if user == "alice" else "--clear-groups"
    become = f"setpriv --reuid={uid} --regid={uid} {groups} env HOME=/tmp USER={user}"
    made = f"mkdir -p /tmp/{user}; chown {uid} /tmp/{user}; cd /tmp/{user}"
    done = cluster.run(f"{made}; exec {become} bash -c {quote(command)} 2>&1")
    assert (done.returncode != 0) == fails, f"{command}: {done.stdout}{done.stderr}\n{cluster.logs()}"
    return done.stdout


def inside(cluster: SlurmSandbox, script: str, *, fails: bool = False, options: str = "") -> str:
    """What a script of alice's prints as a task with the option."""
    return ask(cluster, f"{INSIDE} {options} bash -c {quote(script)}", fails=fails)


def nested(cluster: SlurmSandbox, script: str) -> str:
    """What a script prints that has all rights in a user namespace of its own, below the task's."""
    return inside(cluster, f"unshare -Ur --mount bash -c {quote(script)} 2>&1; true")


WAYS = {
    "step": f"{INSIDE} {IS_ROOT}",
    "batch": f"sbatch -Q --wait -n1 -w {ALLOWED} --chdir=/tmp -o /jail-told --user-namespace --wrap '{IS_ROOT}'",
    "step of a batch job": f"sbatch -Q --wait -n1 -w {ALLOWED} --chdir=/tmp -o /jail-told --wrap '{INSIDE} {IS_ROOT}'",
    "step of a batch job that has it": f"sbatch -Q --wait -n1 -w {ALLOWED} --chdir=/tmp -o /jail-told --user-namespace "
    f"--wrap 'srun -Q --chdir=/tmp {IS_ROOT}'",
    "step that a task in one starts": f"{INSIDE} srun -Q -n1 --overlap --user-namespace {IS_ROOT}",
    "interactive": f"salloc -Q -n1 -w {ALLOWED} srun -Q --interactive --chdir=/ --user-namespace {IS_ROOT}",
    "step of an allocation": f"salloc -Q -n1 -w {ALLOWED} --user-namespace srun -Q --chdir=/ {IS_ROOT}",
    "overlap": f"salloc -Q -n1 -w {ALLOWED} srun -Q --overlap --chdir=/ --user-namespace {IS_ROOT}",
    "terminal": f"{INSIDE} --pty {IS_ROOT}",
    "pmi2": f"{INSIDE} --mpi=pmi2 {IS_ROOT}",
    "task prolog": f"{INSIDE} --task-prolog=/usr/bin/true {IS_ROOT}",
    "task epilog": f"{INSIDE} --task-epilog=/usr/bin/true {IS_ROOT}",
}
"""How tasks come about. A batch job's output is a file of the jail."""


@pytest.mark.parametrize("way", WAYS)
def test_a_task_makes_user_namespaces(cluster: SlurmSandbox, way: str) -> None:
    told = cluster.jail / "jail-told"
    told.touch()
    told.chmod(0o666)
    shown = ask(cluster, WAYS[way])
    assert (told.read_text() if "jail-told" in WAYS[way] else shown).split()[-1] == "0"
    told.unlink()


def test_without_the_option_it_makes_none(cluster: SlurmSandbox) -> None:
    assert "Operation not permitted" in ask(cluster, f"{HERE} {IS_ROOT}", fails=True)


@one_version
def test_twenty_steps_in_a_row(cluster: SlurmSandbox) -> None:
    """Nothing of one is left over that the next could run out of."""
    loop = f"for i in $(seq 20); do srun -Q -n1 --overlap --chdir=/tmp --user-namespace {IS_ROOT} || exit 1; done"
    script = f"salloc -Q -n1 -w {ALLOWED} bash -c {quote(loop)}"
    assert ask(cluster, script).split() == ["0"] * 20
    jobs = f"for i in $(seq 20); do {INSIDE} {IS_ROOT} || exit 1; done"
    assert ask(cluster, jobs).split() == ["0"] * 20


def test_tasks_of_a_step_are_in_the_same_and_steps_are_not(cluster: SlurmSandbox) -> None:
    look = "readlink /proc/self/ns/user /proc/self/ns/mnt | xargs; sleep 1"
    step = f"srun -Q -n2 --overlap --chdir=/tmp --user-namespace bash -c '{look}'"
    both = f"{step} & {step} & wait"
    told = ask(cluster, f"salloc -Q -n2 -w {ALLOWED} bash -c {quote(both)}").splitlines()
    assert len(told) == 4
    assert len(set(told)) == 2
    assert {told.count(line) for line in told} == {2}


PARALLEL = r"""
#include <mpi.h>
#include <stdio.h>
int main(int c, char **v) {
  int rank, sum;
  MPI_Init(&c, &v);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  printf("rank %d sum %d\n", rank, sum);
  MPI_Finalize();
}
"""


def test_a_parallel_program_runs_with_pmix(cluster: SlurmSandbox, slurm_version: str) -> None:
    if slurm_version == "26.05":
        pytest.skip("Debian's 26.05 has no PMIx")
    (cluster.jail / "parallel.c").write_text(PARALLEL)
    step = "srun -Q --overlap --chdir=/tmp"
    both = f"{step} -n1 mpicc -o p /parallel.c && {step} -n4 --mpi=pmix --user-namespace ./p"
    run = f"salloc -Q -n4 -w {ALLOWED} bash -c {quote(both)}"
    told = start_parallel(lambda command: ask(cluster, command), run)
    assert told.count(" sum 6") == 4


def test_the_task_is_the_user_and_has_no_right_more(cluster: SlurmSandbox) -> None:
    look = "id -u -n; id -g; pwd; grep -E 'Cap(Inh|Prm|Eff|Amb)|Seccomp:' /proc/self/status; ls /proc/self/fd"
    plain = ask(cluster, f"{HERE} bash -c {quote(look)}").splitlines()
    assert inside(cluster, look).splitlines() == plain, "its numbers, rights, directory and open files are the same"
    assert plain[:3] == ["alice", "10001", "/tmp"]


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


def install_example(cluster: SlurmSandbox) -> None:
    there = cluster.jail / "usr/local/bin/in-image"
    there.write_bytes((ROOT / "examples/containers/in-image").read_bytes())
    there.chmod(0o755)


def test_a_command_runs_in_an_unpacked_image_by_the_example(cluster: SlurmSandbox) -> None:
    """Without what the jail has, as the user, with the job's /proc, /dev and /tmp and what the user names."""
    install_example(cluster)
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


@one_version
def test_debian_s_programs_fetch_and_unpack_an_image_without_rights(cluster: SlurmSandbox) -> None:
    """As docs/confinement.md has it, but from a directory in place of a registry, which no test reaches."""
    install_example(cluster)
    shutil.copy("/etc/resolv.conf", cluster.jail / "etc/resolv.conf")
    names = cluster.jail / "etc/nsswitch.conf"  # a pod of the sandbox looks up none of other hosts
    names.write_text(names.read_text().replace("hosts: files\n", "hosts: files dns\n"))
    # An index that cannot be fetched is a warning to apt, unless it is told otherwise.
    for command in ("update --error-on=any", "install -y --no-install-recommends skopeo umoci"):
        in_jail = ["chroot", str(cluster.jail), "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", *command.split()]
        done = subprocess.run(in_jail, capture_output=True, text=True, check=False)
        if "Failed to fetch" in done.stderr:
            pytest.skip(f"Debian's mirror does not answer: {done.stderr}")
        assert done.returncode == 0, done.stdout + done.stderr
    unpack = f"""
        {PROGRAMS}
        umoci init --layout made && umoci new --image made:TAG
        umoci insert --rootless --image made:TAG image /
        skopeo copy oci:made:TAG oci:image-of-registry:TAG
        umoci unpack --rootless --image image-of-registry:TAG bundle
        srun -Q --overlap --user-namespace in-image bundle/rootfs bash -c 'id -u; cat /name'
    """
    told = ask(cluster, f"{HERE} bash -c {quote(unpack)}")
    assert told.splitlines()[-2:] == ["10001", "of the image"], told


@one_version
def test_what_is_mounted_is_the_cell_and_nothing_else(cluster: SlurmSandbox) -> None:
    look = "cut -d' ' -f5,9- /proc/self/mountinfo | sort"
    plain = ask(cluster, f"{HERE} bash -c {quote(look)}").splitlines()
    assert len(plain) > 8
    assert inside(cluster, look).splitlines() == plain, "what the cell shows in its place in the pod"


@one_version
def test_nothing_of_the_pod_is_to_be_reached(cluster: SlurmSandbox) -> None:
    script = """
        [ "$(stat -c %d:%i /)" = "$(stat -c %d:%i /proc/self/root/..)" ] && echo same root
        ls /proc/1/root/ /proc/1/cwd/ 2>&1
        ls -d /run/slurmstack/* /usr/libexec/slurmstack/slurmd 2>&1; ls -A /jail 2>&1
        cd /proc/self/root && cd ../../.. && ls -A . 2>&1; true
    """
    told = inside(cluster, script)
    assert told.startswith("same root\n")
    assert told.count("Permission denied") == 2, told
    assert "/run/slurmstack/warden" not in told
    assert "/run/slurmstack/cells" not in told
    assert told == ask(cluster, f"{HERE} bash -c {quote(script)}"), "what the jail shows"


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


@one_version
def test_root_of_a_namespace_writes_nothing_of_root_s(cluster: SlurmSandbox) -> None:
    script = """
        id -u; stat -c %u /etc/passwd
        touch mine; chown 0:0 mine && echo mine
        for file in /etc/passwd /etc/shadow /usr/bin/env /home /run/munge; do
            [ -d $file ] && file=$file/new; ( echo x >> $file ) 2>/dev/null && echo wrote $file; done
        cat /etc/shadow > /dev/null 2>&1 && echo read; chown 0 /etc/passwd 2>/dev/null && echo took
        chmod u+s mine; cp /bin/id suid && chown 0 suid && chmod 6755 suid; true
    """
    assert nested(cluster, script) == "0\n65534\nmine\n"


@one_version
def test_nobody_enters_another_user_s(cluster: SlurmSandbox) -> None:
    run = f"sbatch -Q --parsable -n1 -w {ALLOWED} --chdir=/tmp -o /dev/null --user-namespace --wrap 'exec sleep 777'"
    ask(cluster, run)
    wait_until(lambda: cluster.run("pgrep -fx 'sleep 777'", pod=ALLOWED).returncode == 0, cluster.logs)
    pid = cluster.run("pgrep -fx 'sleep 777'", pod=ALLOWED).stdout.strip()
    enter = f"nsenter --user --mount --preserve-credentials --target={pid} cat /proc/self/uid_map"
    for options in ("", "--user-namespace"):
        told = ask(cluster, f"{HERE} {options} {enter}", user="bob", fails=True)
        assert "Permission denied" in told or "Operation not permitted" in told
        told = ask(cluster, f"{HERE} {options} ls /proc/{pid}/root/tmp", user="bob", fails=True)
        assert "Permission denied" in told


@one_version
def test_nobody_in_the_jail_asks_the_warden(cluster: SlurmSandbox) -> None:
    connect = "socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect('/run/slurmstack/warden/socket')"
    for options in ("", "--user-namespace"):
        told = ask(cluster, f'{HERE} {options} python3 -c "import socket; {connect}"', fails=True)
        assert "FileNotFoundError" in told or "PermissionError" in told


@pytest.mark.parametrize("how", ["srun", "sbatch"])
def test_a_pool_without_them_says_so_and_runs_nothing(cluster: SlurmSandbox, how: str) -> None:
    told = cluster.jail / "jail-told"
    told.touch()
    told.chmod(0o666)
    options = f"-Q -n1 -w {OTHER} --chdir=/tmp --user-namespace"
    command = {
        "srun": f"srun {options} touch /home/was-here",
        "sbatch": f"sbatch --wait -o /jail-told {options} --wrap 'touch /home/was-here'",
    }[how]
    shown = ask(cluster, command, fails=True) + told.read_text()
    assert "--user-namespace: this pool allows no user namespaces (containers: true in the stack file)" in shown
    assert "Can not read return code" not in shown + cluster.logs()
    assert not (cluster.jail / "home/was-here").exists()
    assert ask(cluster, f"srun -Q -n1 -w {OTHER} --chdir=/tmp echo fine") == "fine\n"
    told.unlink()


@pytest.mark.parametrize("how", ["srun", "sbatch"])
def test_slurm_s_own_way_is_refused_and_not_ignored(cluster: SlurmSandbox, how: str) -> None:
    told = cluster.jail / "jail-told"
    told.touch()
    told.chmod(0o666)
    options = f"-Q -n1 -w {ALLOWED} --chdir=/tmp --container=/tmp/bundle"
    command = {"srun": f"srun {options} id", "sbatch": f"sbatch --wait -o /jail-told {options} --wrap id"}[how]
    shown = ask(cluster, command, fails=True) + told.read_text()
    assert "there is no --container here; see --user-namespace" in shown
    assert "uid=" not in shown
    told.unlink()


def test_what_is_left_in_them_ends_with_the_job(cluster: SlurmSandbox) -> None:
    """`nothing_left` looks for the processes, and for the cell."""
    daemons = "setsid --fork sleep 1000; setsid --fork unshare -Ur sleep 1000"
    nested(cluster, f"mount -t tmpfs none /mnt; fallocate -l 5M /mnt/x; {daemons}")


HUNT = """
import os, signal
while True:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm") as file:
                if file.read() == "namespaces\\n":
                    os.kill(int(pid), signal.SIG%s)
        except OSError:
            pass
"""
TOLD = {"STOP": "did not do so within", "KILL": "was ended"}


@one_version
@pytest.mark.parametrize("signal", TOLD)
def test_who_stops_what_makes_them_stops_nobody_else(cluster: SlurmSandbox, signal: str) -> None:
    """It is the user's own process for a moment, which he may stop or end: that is his step's end, and no other's."""
    hunt = f"exec python3 -c {quote(HUNT % signal)}"
    ask(cluster, f"sbatch -Q -n1 -w {ALLOWED} --chdir=/tmp -o /dev/null --wrap {quote(hunt)}")
    wait_until(lambda: cluster.run("pgrep -u alice python3", pod=ALLOWED).returncode == 0, cluster.logs)
    log = cluster.pods[ALLOWED].log
    before = len(log("slurmd"))
    steps = "for i in $(seq 50); do [ -e stop ] || srun -Q -n1 --overlap --chdir=/tmp --user-namespace true; done; true"
    ask(cluster, f"rm -f stop; salloc -Q -n1 -w {ALLOWED} bash -c {quote(steps)} >hunted 2>&1 &")
    try:
        wait_until(lambda: TOLD[signal] in log("slurmd")[before:], lambda: f"{signal}\n{cluster.logs()}")
        told = ask(cluster, f"for i in 1 2 3; do {INSIDE} {IS_ROOT} || exit 1; done", user="bob")
        assert told.split() == ["0"] * 3
    finally:
        ask(cluster, "touch stop")
