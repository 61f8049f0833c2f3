"""Which runtimes run an image in a pool with `containers: true`, and which do not: docs/confinement.md."""

from __future__ import annotations

import pytest

from tests.clients.conftest import Alice
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

AS_IN_A_POD = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
calls = [155, 248, 249, 250]  # pivot_root, add_key, request_key, keyctl of x86-64
code = [(0x20, 0, 0, 0)]  # the call's number
code += [(0x15, len(calls) - at, 0, call) for at, call in enumerate(calls)]  # one of these: to the last line
code += [(0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x50001)]  # allowed; EPERM
text = b"".join(struct.pack("HBBI", *line) for line in code)
held = ctypes.create_string_buffer(text)
program = struct.pack("HxxxxxxP", len(code), ctypes.addressof(held))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0, os.strerror(ctypes.get_errno())
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""Runs a command without the calls that Kubernetes' profile RuntimeDefault lacks and runtimes are known to make."""

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


def expected() -> list[str]:
    return sorted(
        f"{task}: {line}" for task in (0, 1) for line in ("of the image", "of the home", "25301", "not the jail")
    )


def test_in_image(pulled: Alice) -> None:
    assert sorted(inside(pulled, f"in-image bundle/rootfs {LOOK}").splitlines()) == expected()


def test_apptainer_runs_directories(pulled: Alice) -> None:
    """It moves to the image where the kernel's pivot_root is refused. Its files of one piece need /dev/fuse."""
    assert pulled.run("apptainer --version") == "apptainer version 1.4.5\n"
    pulled.run("apptainer build --sandbox tree oci:image; apptainer build image.sif oci:image")
    assert sorted(inside(pulled, f"apptainer exec tree {LOOK}").splitlines()) == expected()
    assert "fuse: device not found" in inside(pulled, "apptainer exec image.sif true", fails=True)


def test_charliecloud_does_not_run(pulled: Alice) -> None:
    """It does, where pivot_root is allowed, which no profile RuntimeDefault does."""
    run = f"ch-run --home bundle/rootfs -- {LOOK}"
    assert pulled.run("ch-run --version 2>&1") == "0.38\n"
    assert "of the image\nof the home\n25301\n" in pulled.run(f"srun -Q --user-namespace {run}")
    assert "can't pivot_root(2): Operation not permitted" in inside(pulled, run, fails=True)
