"""Which runtimes run an image in a pool with `containers: true`, and which do not."""

from __future__ import annotations

from shlex import quote

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

RUNTIMES = {
    "in-image": "in-image bundle/rootfs",
    "Apptainer": "apptainer --version && apptainer exec bundle/rootfs",
    "Charliecloud": "ch-run --version && ch-run --home bundle/rootfs --",
}


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


def look(alice: Alice, runtime: str, *, fails: bool = False) -> str:
    command = f"{RUNTIMES[runtime]} sh -c 'cat /name ~/data; id -u; ls -d /usr/share/dpkg || echo not the jail'"
    return alice.run(f"srun -Q --user-namespace python3 as-in-a-pod.py sh -c {quote(command)}", fails=fails)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_an_image_runs_with_the_home_mounted(pulled: Alice, runtime: str) -> None:
    told = look(pulled, runtime)
    assert "of the image\nof the home\n25301\n" in told
    assert "not the jail" in told
