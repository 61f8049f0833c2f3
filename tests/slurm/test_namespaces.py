"""`srun --user-namespace`: containers in jobs of a pool that allows it, with real daemons. And what stays closed."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

import pytest

from config import load_config
from tests import stacks
from tests.slurm.cluster import ClusterFactory
from tests.slurm.conftest import one_version
from tests.slurm.minimal import IN_JAIL, TOKENS, add_accounts, identity, lines_of, minimal_config
from tests.slurm.pod import wait_until
from tests.slurm.sandbox import SlurmSandbox
from tests.stacks import ROOT

USERS = {"alice": 10001, "bob": 10002}
ALLOWED, OTHER = "default-0", "default-1"
HERE = f"srun -Q -n1 --nodelist={ALLOWED} --chdir=/tmp"
INSIDE = f"{HERE} --user-namespace"
IS_ROOT = "unshare -Ur id -u"


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, slurm_version: str) -> SlurmSandbox:
    """A worker of a pool that allows containers, and one of a pool that does not. Users ask from the controller."""
    known = identity(USERS)
    known["group"] += "team:x:20001:alice\n"
    extra = lines_of(load_config(stacks.dev()), *TOKENS, "Prolog", "Epilog")
    config = minimal_config(slurm_version, extra, **IN_JAIL, **known)
    node_conf = "CPUs=8 RealMemory=1000 Feature=default"
    sandbox = slurm_cluster(slurm_version, config=config, workers=0, jail=True, node_conf=node_conf)
    add_accounts(known, sandbox.jail, sandbox.controller.root)
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


def inside(cluster: SlurmSandbox, script: str, *, options: str = "") -> str:
    """What a script of alice's prints as a task with the option."""
    return ask(cluster, f"{INSIDE} {options} bash -c {quote(script)}")


def nested(cluster: SlurmSandbox, script: str) -> str:
    """What a script prints that has all rights in a user namespace of its own, below the task's."""
    return inside(cluster, f"unshare -Ur --mount bash -c {quote(script)} 2>&1; true")


WAYS = {
    "step": f"{INSIDE} {IS_ROOT}",
    "batch": f"sbatch -Q --wait -n1 -w {ALLOWED} --chdir=/tmp -o /jail-told --user-namespace --wrap '{IS_ROOT}'",
    "interactive": f"salloc -Q -n1 -w {ALLOWED} srun -Q --interactive --chdir=/ --user-namespace {IS_ROOT}",
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
    """`nothing_left` looks for the processes, and for the cell."""
    daemons = "setsid --fork sleep 1000; setsid --fork unshare -Ur sleep 1000"
    nested(cluster, f"mount -t tmpfs none /mnt; fallocate -l 5M /mnt/x; {daemons}")
