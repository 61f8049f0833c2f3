"""Which runtimes run an image in a pool with `containers: true`, and which do not: docs/confinement.md."""

from __future__ import annotations

import pytest

from slurm.rights import INTO_JAIL
from tests.clients.conftest import Alice
from tests.machine.seccomp import default_profile
from tests.stacks import ROOT

PULLED = """
set -e
umoci init --layout made; umoci new --image made:1; umoci unpack --rootless --image made:1 made-bundle
cd made-bundle/rootfs
mkdir -p bin dev etc home proc sys tmp var/tmp; touch etc/passwd etc/group etc/hosts etc/resolv.conf
echo "of the image" > name
programs="/usr/bin/bash /usr/bin/cat /usr/bin/id /usr/bin/ls /usr/bin/env"
for file in $programs $(ldd $programs | grep -o '/[^ ]*' | grep -v : | sort -u); do
    cp --parents --dereference $file .
done
cp usr/bin/bash bin/sh
cd; umoci repack --image made:1 made-bundle
skopeo copy oci:made:1 oci:image:1
umoci unpack --rootless --image image:1 bundle
"""
"""An image is made of a few programs, and then fetched as docs/confinement.md says; but not from a registry."""

CALLS = " ".join(name for rule in default_profile(INTO_JAIL)["syscalls"] for name in rule["names"])

AS_IN_A_POD = f"""
import ctypes, os, sys
seccomp = ctypes.CDLL("libseccomp.so.2")
seccomp.seccomp_init.restype = ctypes.c_void_p
filter = ctypes.c_void_p(seccomp.seccomp_init(0x50001))  # EPERM for what is not named
for name in b"{CALLS}".split():
    number = seccomp.seccomp_syscall_resolve_name(name)
    number == -1 or seccomp.seccomp_rule_add(filter, 0x7FFF0000, number, 0)
assert seccomp.seccomp_load(filter) == 0
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""Runs a command with the calls of the kernel that a worker's pod may make: Kubernetes' profile RuntimeDefault."""

LOOK = "sh -c 'cat /name ~/data; id -u; cat ~/data > /tmp/own; test -e /usr/share/dpkg || echo not the jail'"


@pytest.fixture(scope="module")
def pulled(alice: Alice) -> Alice:
    """Alice with an unpacked image, and a file in her home."""
    there = alice.cluster.jail / "usr/local/bin/in-image"
    there.write_bytes((ROOT / "examples/containers/in-image").read_bytes())
    there.chmod(0o755)
    alice.run("bash", stdin=PULLED)
    alice.write("as-in-a-pod.py", AS_IN_A_POD)
    alice.write("data", "of the home\n")
    return alice


def inside(alice: Alice, command: str, *, fails: bool = False) -> str:
    """What a command prints on two nodes of a pool with `containers: true`."""
    return alice.run(f"srun -Q -N2 --label --user-namespace python3 as-in-a-pod.py {command}", fails=fails)


WANTED = {f"{task}: {line}" for task in (0, 1) for line in ("of the image", "of the home", "25301", "not the jail")}


def test_in_image(pulled: Alice) -> None:
    assert {*inside(pulled, f"in-image bundle/rootfs {LOOK}").splitlines()} >= WANTED


def test_apptainer_runs_directories(pulled: Alice) -> None:
    """It moves to the image where the kernel's pivot_root is refused. Its files of one piece need /dev/fuse."""
    assert pulled.run("apptainer --version") == "apptainer version 1.4.5\n"
    pulled.run("apptainer build --sandbox tree oci:image; apptainer build image.sif oci:image")
    assert {*inside(pulled, f"apptainer exec tree {LOOK}").splitlines()} >= WANTED
    assert "fuse: device not found" in inside(pulled, "apptainer exec image.sif true", fails=True)


def test_charliecloud_does_not_run(pulled: Alice) -> None:
    """It does, where pivot_root is allowed, which no profile RuntimeDefault does."""
    run = f"ch-run --home bundle/rootfs -- {LOOK}"
    assert pulled.run("ch-run --version 2>&1") == "0.38\n"
    assert "of the image\nof the home\n25301\n" in pulled.run(f"srun -Q --user-namespace {run}")
    assert "can't pivot_root(2): Operation not permitted" in inside(pulled, run, fails=True)
