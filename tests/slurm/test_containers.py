"""Jobs in the root file system of a container (`srun --container-image`), with real daemons, and attempts with it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from config import load_config
from slurm.conf import render
from tests import stacks
from tests.openmpi import start_parallel
from tests.slurm.cluster import ClusterFactory
from tests.slurm.minimal import TOKENS, lines_of, minimal_config
from tests.slurm.pod import wait_until
from tests.slurm.sandbox import SlurmSandbox

UID, BOB = 10001, 10002
NODE = "default-0"
SYS_CHROOT = 1 << 18
IMAGE = "/home/alice/debian"
"""The jail's own files once more, root's, with a marker: all that a distribution has, sudo too."""
SMALL = "/home/alice/small"
"""A few programs of this machine's own, alice's, with none of the directories that jobs need."""
FROM_HERE = ("/bin/sh", "/bin/cat", "/bin/id", "/bin/ls")


def unpack_small(at: Path) -> None:
    """Programs with the libraries that they name, which are not the jail's."""
    wanted = set(FROM_HERE)
    for program in FROM_HERE:
        told = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout.split()
        wanted |= {word for word in told if word.startswith("/")}
    for file in wanted:
        (at / file[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(file).resolve(), at / file[1:])
    (at / "etc").mkdir()
    (at / "etc/os-release").write_text("small\n")
    (at / "etc/hosts").touch()
    for path in [at, *at.rglob("*")]:
        os.lchown(path, UID, UID)


def copy_jail(jail: Path, at: Path) -> None:
    """All of the jail but homes and what is large; compilers are the jail's own."""
    large = ("./home", "./usr/lib/gcc", "./usr/libexec/gcc", "./usr/include", "./usr/share/doc", "*.a", "libLLVM*")
    at.mkdir()
    packed = subprocess.Popen(
        ["tar", "-c", "--one-file-system", f"--directory={jail}", *(f"--exclude={name}" for name in large), "."],
        stdout=subprocess.PIPE,
    )
    subprocess.run(["tar", "-x", "--preserve-permissions", f"--directory={at}"], stdin=packed.stdout, check=True)
    assert packed.wait() == 0
    (at / "home").mkdir()


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, slurm_version: str) -> SlurmSandbox:
    """One worker with the jail, where alice has two images. She asks from the controller."""
    stack = load_config(stacks.with_change(stacks.dev(), "jail.container_images", True))
    known = {
        "passwd": f"alice:x:{UID}:{UID}::/home/alice:/bin/bash\nbob:x:{BOB}:{BOB}::/home/bob:/bin/bash\n",
        "group": f"alice:x:{UID}:\nbob:x:{BOB}:\n",
    }
    extra = lines_of(stack, *TOKENS, "Prolog", "Epilog")
    plugins = {"plugstack.conf": render(stack)["plugstack.conf"]}
    sandbox = slurm_cluster(
        slurm_version, config=minimal_config(slurm_version, extra, **plugins, **known), workers=1, jail=True,
        node_conf="CPUs=8 RealMemory=1000 Feature=default",
    )  # fmt: skip
    for name, text in known.items():
        for root in (sandbox.jail, sandbox.controller.root):
            with (root / "etc" / name).open("a") as file:
                file.write(text)
    for home, owner in (("alice", UID), ("bob", BOB)):
        (sandbox.jail / "home" / home).mkdir(mode=0o755)
        os.chown(sandbox.jail / "home" / home, owner, owner)
    image = sandbox.jail / IMAGE[1:]
    copy_jail(sandbox.jail, image)
    for name, text in {"marker": "the image\n", "sudoers": "alice ALL=(ALL) NOPASSWD: ALL\n"}.items():
        (image / "etc" / name).unlink(missing_ok=True)
        (image / "etc" / name).write_text(text)
    (image / "etc/sudoers").chmod(0o440)
    unpack_small(sandbox.jail / SMALL[1:])
    return sandbox


@pytest.fixture(autouse=True)
def nothing_left(cluster: SlurmSandbox) -> Iterator[None]:
    """Whatever a test does, of its jobs no mount is there afterwards, and the node is fit for others."""
    yield
    cluster.run("scancel --user=alice,bob")
    wait_until(lambda: not cluster.run("squeue --noheader").stdout.strip(), cluster.logs, 60)
    wait_until(lambda: mounts(cluster) == [], lambda: f"{mounts(cluster)}\n{cluster.logs()}")
    assert cluster.run(f"sinfo --noheader --nodes={NODE} --format=%T").stdout.strip() == "idle", cluster.logs()


def mounts(cluster: SlurmSandbox) -> list[str]:
    """Where something of jobs is mounted on the node."""
    lines = cluster.run("grep cells /proc/self/mountinfo", pod=NODE).stdout.splitlines()
    return [line.split()[4] for line in lines]


def ask(cluster: SlurmSandbox, command: str, *, user: int = UID, timeout: float = 60) -> tuple[int, str]:
    """Status and output of a command of alice's, or of another's."""
    as_user = f"setpriv --reuid={user} --regid={user} --clear-groups env HOME=/home/alice USER=alice"
    (cluster.controller.root / "tmp/command").write_text(command)
    done = cluster.run(f"cd /tmp; exec {as_user} bash /tmp/command 2>&1", timeout=timeout)
    return done.returncode, done.stdout


def alice(cluster: SlurmSandbox, command: str, timeout: float = 60) -> str:
    """What a command of hers prints that succeeds."""
    code, out = ask(cluster, command, timeout=timeout)
    assert code == 0, f"{command}: {out}\n{cluster.logs()}"
    return out


def within(cluster: SlurmSandbox, command: str, image: str = IMAGE) -> str:
    """The same of a command in a container."""
    return alice(cluster, f"srun -Q -n1 --chdir=/home/alice --container-image={image} bash <<'END'\n{command}\nEND")


def test_a_step_sees_the_files_of_the_image_as_its_user(cluster: SlurmSandbox) -> None:
    told = within(cluster, "cat /etc/marker; id -un; pwd; ls -d /.slurmstack; touch /home/alice/written")
    assert told.split() == ["the", "image", "alice", "/home/alice", "/.slurmstack"]
    assert (cluster.jail / "home/alice/written").stat().st_uid == UID
    assert ask(cluster, "srun -Q --chdir=/ cat /etc/marker")[0] != 0, "the jail itself has no such file"


def test_an_image_of_another_system_runs_with_its_own_programs_and_libraries(cluster: SlurmSandbox) -> None:
    told = alice(cluster, f"srun -Q --container-image={SMALL} sh -c 'cat /etc/os-release; id -u; pwd; ls /'")
    assert told.split()[:3] == ["small", str(UID), "/tmp"]
    assert {"proc", "dev", "tmp", "home", "sys", "bin"} <= set(told.split()), "made for the job, as its user"
    assert (cluster.jail / SMALL[1:] / "proc").stat().st_uid == UID
    assert ask(cluster, f"srun -Q --container-image={SMALL} python3 -V")[0] != 0, "the jail's programs are not there"


def test_the_job_s_own_things_are_in_the_container(cluster: SlurmSandbox) -> None:
    script = f"""salloc -Q -n1 bash <<'END'
srun -Q --chdir=/ bash -c 'echo of the job > /tmp/a; echo too > /dev/shm/b'
srun -Q --chdir=/ --container-image={IMAGE} bash -c '
  cat /tmp/a /dev/shm/b; echo back > /tmp/c; cat /proc/$$/comm /etc/hostname; : > /dev/null'
srun -Q --chdir=/ cat /tmp/c
END"""
    told = alice(cluster, script).split("\n")
    assert told[:4] == ["of the job", "too", "bash", NODE]
    assert told[-2] == "back"


def test_a_batch_script_runs_in_it_and_starts_steps_outside(cluster: SlurmSandbox) -> None:
    """As Slurm itself keeps a step's options from the steps that it starts."""
    (cluster.jail / "home/alice/out").unlink(missing_ok=True)
    alice(
        cluster,
        f"sbatch -Q --wait -n1 --chdir=/home/alice -o out --container-image={IMAGE} "
        "--wrap 'cat /etc/marker; srun -Q -n1 ls /etc/marker'",
    )
    told = (cluster.jail / "home/alice/out").read_text()
    assert told.startswith("the image\n"), told
    assert "No such file" in told


def test_exit_codes_and_signals_are_those_of_the_program(cluster: SlurmSandbox) -> None:
    code, _ = ask(cluster, f"srun -Q --container-image={IMAGE} bash -c 'exit 7'")
    assert code == 7
    job = alice(cluster, f"sbatch --parsable -n1 -o /dev/null --container-image={IMAGE} --wrap 'exec sleep 4711'")
    running = lambda: cluster.run("pgrep -f 'sleep 4711'", pod=NODE).returncode == 0  # noqa: E731
    wait_until(running, cluster.logs)
    alice(cluster, f"scancel {job}")
    wait_until(lambda: not running(), cluster.logs)


def test_many_steps_share_what_one_of_them_has_had_shown(cluster: SlurmSandbox) -> None:
    step = f"srun -Q -n1 --mem=10 --overlap --chdir=/ --container-image={IMAGE} bash -c 'cat /etc/marker; sleep 1' &"
    told = alice(cluster, "salloc -Q -n4 bash <<'END'\n" + f"{step}\n" * 4 + "wait\nEND")
    assert told == "the image\n" * 4
    job = alice(cluster, f"sbatch --parsable -n1 -o /dev/null --container-image={IMAGE} --wrap 'sleep 1000'").strip()
    proc = f"/run/slurmstack/cells/{job}{IMAGE}/proc"
    wait_until(lambda: mounts(cluster).count(proc) == 1, cluster.logs)
    alice(cluster, f"srun -Q --jobid={job} --overlap -n1 --chdir=/ --container-image={IMAGE} true")
    assert mounts(cluster).count(proc) == 1


def test_a_parallel_program_runs_in_the_image_with_pmix(cluster: SlurmSandbox, slurm_version: str) -> None:
    if slurm_version == "26.05":
        pytest.skip("Debian's 26.05 has no PMIx")
    program = r"""
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>
int main(int c, char **v) {
  int rank, sum;
  MPI_Init(&c, &v);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  printf("%d in the image, sum %d\n", access("/etc/marker", R_OK), sum);
  MPI_Finalize();
}
"""
    (cluster.jail / "home/alice/hello.c").write_text(program)
    alice(cluster, "srun -Q --chdir=/home/alice mpicc -o hello hello.c")
    run = f"srun -Q --mpi=pmix -n4 --mem=400 --chdir=/home/alice --container-image={IMAGE} ./hello"
    assert start_parallel(lambda command: alice(cluster, command, 120), run).count("0 in the image, sum 6") == 4


# ---------------------------------------------------------------- what does not work, and says why


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("debian", "absolute path"),
        ("/home/alice/nowhere", "No such file"),
        ("/etc/passwd", "Not a directory"),
        ("/home/bob/private/image", "Permission denied"),
        ("/proc/self/root", "no absolute path without links"),
        ("/dev/shm", "images cannot be below /dev"),
        ("/var/spool/slurmd", "images cannot be below /var"),
        ("/home/bob", "it has no directory /"),
    ],
)
def test_what_is_no_image_is_refused_with_a_reason(cluster: SlurmSandbox, path: str, why: str) -> None:
    private = cluster.jail / "home/bob/private"
    private.mkdir(mode=0o700, exist_ok=True)
    (private / "image").mkdir(exist_ok=True)
    before = cluster.pods[NODE].log("slurmd")
    code, told = ask(cluster, f"srun -Q -n1 --chdir=/ --container-image={path} touch /home/alice/ran")
    assert code != 0
    assert why in told + cluster.pods[NODE].log("slurmd")[len(before) :], told
    assert not (cluster.jail / "home/alice/ran").exists()


def test_without_the_option_of_the_stack_there_is_none_of_srun(cluster: SlurmSandbox) -> None:
    text = render(load_config(stacks.dev()))["plugstack.conf"]
    (cluster.controller.root / "tmp/none").mkdir(exist_ok=True)
    for name, content in {**minimal_config(cluster.version), "plugstack.conf": text}.items():
        (cluster.controller.root / "tmp/none" / name).write_text(content)
    for conf, told in (("/tmp/none/slurm.conf", False), ("", True)):
        done = cluster.run("srun --help", env={"SLURM_CONF": conf} if conf else {})
        assert ("--container-image=DIRECTORY" in done.stdout) == told, done.stdout + done.stderr


# ---------------------------------------------------------------- what a hostile user tries


def test_no_program_of_an_image_makes_its_user_root(cluster: SlurmSandbox) -> None:
    """The image says that alice may do all, and has sudo with its set-user-ID bit."""
    control = ["chroot", "--userspec=10001:10001", f"/jail{IMAGE}", "sudo", "-n", "id", "-u"]
    assert cluster.run(control, pod=NODE).stdout == "0\n", "outside of a job it works"
    told = within(cluster, "sudo -n id -u; cp /usr/bin/id /tmp/id; grep -E '^(Cap|NoNew)' /proc/self/status")
    assert "no new privileges" in told
    values = dict(line.split() for line in told.splitlines() if line.startswith(("Cap", "NoNew")))
    assert values.pop("NoNewPrivs:") == "1"
    assert {name: int(mask, 16) for name, mask in values.items() if name != "CapBnd:"} == dict.fromkeys(
        ("CapInh:", "CapPrm:", "CapEff:", "CapAmb:"), 0
    )
    assert not int(values["CapBnd:"], 16) & SYS_CHROOT


OUT = r"""
import array, os, socket
def tried(what, call):
    try:
        print(what, "worked", call())
    except OSError as error:
        print(what, error.strerror)
os.makedirs("/tmp/in", exist_ok=True)
tried("chroot", lambda: os.chroot("/tmp/in"))
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print("unshare", os.strerror(ctypes.get_errno()) if libc.unshare(0x10000000) else "worked")
print("mount", os.strerror(ctypes.get_errno()) if libc.mount(b"/tmp", b"/home", b"", 4096, b"") else "worked")
print("umount", os.strerror(ctypes.get_errno()) if libc.umount2(b"/proc", 2) else "worked")
server = socket.socket(socket.AF_UNIX)
server.bind("/tmp/socket")
server.listen()
os.chmod("/tmp/socket", 0o777)
_, files, _, _ = socket.recv_fds(server.accept()[0], 16, 1)
jail = files[0]
tried("jail", lambda: os.path.exists("/proc/self/fd/%d/.slurmstack" % jail))
above = os.open("..", os.O_PATH, dir_fd=jail)
tried("cells", lambda: os.listdir(above))
tried("above", lambda: os.listdir(os.open("..", os.O_RDONLY, dir_fd=above)))
tried("fchdir", lambda: os.fchdir(above))
"""
PASS = r"""
import os, socket, time
for _ in range(200):
    if os.path.exists("/tmp/socket"):
        break
    time.sleep(0.1)
time.sleep(0.3)
there = socket.socket(socket.AF_UNIX)
there.connect("/tmp/socket")
socket.send_fds(there, [b"x"], [os.open("/", os.O_PATH)])
"""


def test_nothing_leads_out_of_the_cell(cluster: SlurmSandbox) -> None:
    """Not even the jail's own root directory, which a step of the same job passes in."""
    for name, text in {"out.py": OUT, "pass.py": PASS}.items():
        (cluster.jail / f"home/alice/{name}").write_text(text)
    step = "srun -Q -n1 --mem=100 --overlap --chdir=/"
    told = alice(
        cluster,
        f"salloc -Q -n2 bash <<'END'\n{step} python3 /home/alice/pass.py &\n"
        f"{step} --container-image={IMAGE} python3 /home/alice/out.py; wait\nEND",
    )
    refused = {line.split(" ")[0]: line for line in told.splitlines()}
    assert refused["jail"] == "jail worked True", "it has what is passed to it"
    for what in ("chroot", "unshare", "mount", "umount"):
        assert refused[what] == f"{what} Operation not permitted"
    for what in ("cells", "above", "fchdir"):
        assert refused[what] == f"{what} Permission denied"


def test_a_link_in_an_image_leads_no_mount_elsewhere(cluster: SlurmSandbox) -> None:
    """The warden mounts as root where the user's directories are."""
    trap = cluster.jail / "home/alice/trap"
    shutil.rmtree(trap, ignore_errors=True)
    for name in ("proc", "sys", "dev", "tmp", "bin"):
        (trap / name).mkdir(parents=True)
    (trap / "home").symlink_to("/etc")
    (trap / "etc").symlink_to("/etc")
    (trap / "var").symlink_to("/var")
    (trap / "run").symlink_to("/run")
    for path in [trap, *trap.iterdir()]:
        os.lchown(path, UID, UID)
    job = alice(cluster, "sbatch --parsable -n1 -o /dev/null --chdir=/ --wrap 'sleep 1000'").strip()
    cell = f"/run/slurmstack/cells/{job}"
    wait_until(lambda: cell in mounts(cluster), cluster.logs)
    before = mounts(cluster)
    ask(cluster, f"srun -Q --jobid={job} --overlap -n1 --chdir=/ --container-image=/home/alice/trap true")
    new = sorted(set(mounts(cluster)) - set(before))
    assert f"{cell}/home/alice/trap/proc" in new
    assert all(point.startswith(f"{cell}/home/alice/trap/") for point in new), new
    assert sorted(set(mounts(cluster))) == sorted({*before, *new})
    assert len(mounts(cluster)) == len(before) + len(new), "nothing is mounted over what was there"
    (trap / "tmp").rmdir()
    (trap / "tmp").symlink_to("/home/bob")
    code, _ = ask(cluster, "srun -Q -n1 --chdir=/ --container-image=/home/alice/trap true")
    assert code != 0
    assert "it has no directory /tmp" in cluster.pods[NODE].log("slurmd")


def test_directories_that_change_places_meanwhile_lead_no_mount_elsewhere(cluster: SlurmSandbox) -> None:
    race = cluster.jail / "home/alice/race"
    shutil.rmtree(race, ignore_errors=True)
    for name in ("proc", "sys", "dev", "tmp", "bin", "home"):
        (race / "a" / name).mkdir(parents=True)
    (race / "b").symlink_to("/home/bob")
    for name in ("proc", "sys", "dev", "tmp", "home"):
        (cluster.jail / "home/bob" / name).mkdir(exist_ok=True)
    for path in [race, *race.rglob("*")]:
        os.lchown(path, UID, UID)
    swap = "cd /home/alice/race; while :; do mv -T a c; mv -T b a; mv -T a b; mv -T c a; done"
    job = alice(cluster, f'sbatch --parsable -n1 -o /dev/null --chdir=/ --wrap "{swap}"').strip()
    cell = f"/run/slurmstack/cells/{job}"
    wait_until(lambda: cell in mounts(cluster), cluster.logs)
    before = set(mounts(cluster))
    step = f"srun -Q --jobid={job} --overlap -n1 --chdir=/ --container-image=/home/alice/race/a true"
    ask(cluster, f"for i in $(seq 25); do {step}; done", timeout=120)
    new = set(mounts(cluster)) - before
    allowed = (f"{cell}/home/alice/race/", f"{cell}/home/bob/")
    assert all(point.startswith(allowed) for point in new), new


def test_only_steps_with_an_image_keep_a_way_into_one(cluster: SlurmSandbox) -> None:
    """And of these only the thread that starts the tasks, which does not use it and gives it to no program."""
    look = "for s in $(pgrep -x slurmstepd); do for t in /proc/$s/task/*; do "
    look += "echo $(readlink $t/root) $(basename $t) $s $(awk '/^Cap(Prm|Eff|Bnd)/ {print $2}' $t/status); done; done"
    found = {}
    for kind, option in (("plain", ""), ("image", f"--container-image={IMAGE}")):
        job = alice(cluster, f"sbatch --parsable -n1 -o /dev/null --chdir=/ {option} --wrap 'sleep 1000'").strip()
        wait_until(lambda job=job: f"/run/slurmstack/cells/{job}" in mounts(cluster), cluster.logs)  # type: ignore[misc]
        wait_until(lambda: cluster.run("pgrep -f 'sleep 1000'", pod=NODE).returncode == 0, cluster.logs)
        lines = [line.split() for line in cluster.run(look, pod=NODE).stdout.splitlines()]
        found[kind] = [(tid == pid, *masks) for root, tid, pid, *masks in lines if root.endswith(f"cells/{job}")]
        alice(cluster, f"scancel {job}")
        wait_until(lambda: cluster.run("pgrep -f 'sleep 1000'", pod=NODE).returncode != 0, cluster.logs)
    masks = {kind: [(main, *(int(mask, 16) & SYS_CHROOT for mask in rest)) for main, *rest in threads]
             for kind, threads in found.items()}  # fmt: skip
    assert len(masks["plain"]) > 1
    assert set(masks["plain"]) == {(True, 0, 0, 0), (False, 0, 0, 0)}
    assert set(masks["image"]) == {(True, SYS_CHROOT, 0, 0), (False, 0, 0, 0)}


def test_a_job_has_a_handful_of_images_on_a_node(cluster: SlurmSandbox) -> None:
    """Each takes mounts, of which the kernel has so many for all jobs of the node."""
    places = cluster.jail / "home/alice/many"
    for number in range(10):
        (places / str(number)).mkdir(parents=True, exist_ok=True)
    for path in [places, *places.iterdir()]:
        os.chown(path, UID, UID)
    step = "srun -Q -n1 --mem=10 --chdir=/ --container-image=/home/alice/many/$i true"
    before = cluster.pods[NODE].log("slurmd")
    ask(cluster, f"salloc -Q -n1 bash <<'END'\nfor i in $(seq 0 9); do {step}; done\nEND", timeout=120)
    log = cluster.pods[NODE].log("slurmd")[len(before) :]
    assert log.count("a job can have 8 images on a node") == 2, log
