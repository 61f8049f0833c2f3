"""The GPU driver shown in the jail, by real mounts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]


NAMESPACE = r"""
set -eu
mount -t tmpfs tmpfs "$WORK"
for name in pod volume; do
    mkdir -p "$WORK/$name/upper" "$WORK/$name/work" "$WORK/$name/root"
    mount -t overlay overlay -o "lowerdir=/,upperdir=$WORK/$name/upper,workdir=$WORK/$name/work" "$WORK/$name/root"
    mount --rbind /dev "$WORK/$name/root/dev"
done
cd "$WORK/pod/root"
mount --rbind /proc proc
mkdir -p jail repository driver
mount --bind "$REPOSITORY" repository
mount --rbind "$WORK/volume/root" jail
python=$(command -v python3)
"$python" - "$LIBRARY" driver/libcuda.so.570.1 <<'END'
import sys
from pathlib import Path
content = Path(sys.argv[1]).read_bytes()
name, wanted = b"libBrokenLocale.so.1\0", b"libcuda.so.1\0"
assert name in content
Path(sys.argv[2]).write_bytes(content.replace(name, wanted.ljust(len(name), b"\0")))
END
printf '#!/bin/sh\necho GPU 0\n' > driver/nvidia-smi
chmod 755 driver/nvidia-smi
touch usr/lib/x86_64-linux-gnu/libcuda.so.570.1 usr/bin/nvidia-smi
mount --bind driver/libcuda.so.570.1 usr/lib/x86_64-linux-gnu/libcuda.so.570.1
mount --bind driver/nvidia-smi usr/bin/nvidia-smi
bind='from pathlib import Path
from images.common.command import run
from images.common.gpu_view import bind_driver
assert bind_driver(Path("/jail"), run, print)'
load='import ctypes; ctypes.CDLL("libcuda.so.1"); print("loaded", open("/proc/self/maps").read().count("libcuda") > 0)'
chroot jail "$python" -c "$load" 2>&1 | tail -n1
chroot . env PYTHONPATH=/repository "$python" -c "$bind"
chroot . env PYTHONPATH=/repository "$python" -c "$bind"
mount --bind proc jail/proc
chroot jail "$python" -c "$load"
chroot jail env LD_LIBRARY_PATH=/elsewhere "$python" -c "$load"
chroot jail /run/slurmstack/gpu/bin/nvidia-smi
chroot . grep -c ' /jail/run/slurmstack/gpu .* - tmpfs ' /proc/self/mountinfo
echo "files on the volume: $(find "$WORK/volume/upper" ! -type d | tr '\n' ' ')"
echo "directories on the volume: $(cd "$WORK/volume/upper" && find . -type d -empty | sort | tr '\n' ' ')"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_a_program_in_the_jail_loads_the_pods_driver_and_the_volume_gets_no_file(tmp_path: Path) -> None:
    """With real mounts: two overlays of this machine are the pod and the jail, a small library is the driver."""
    library = Path("/usr/lib/x86_64-linux-gnu/libBrokenLocale.so.1")
    if not library.exists():
        pytest.skip("needs the C library of Debian on x86_64, part of which plays the driver")
    assert shutil.which("python3"), sys.executable
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "bash", "-c", NAMESPACE],
        env={**os.environ, "WORK": str(tmp_path), "REPOSITORY": str(REPOSITORY), "LIBRARY": str(library)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert "cannot open shared object" in lines[0], "before: there is nothing to load"
    assert lines[-6:-3] == ["loaded True", "loaded True", "GPU 0"], done.stdout
    assert lines[-3] == "1", "a second call mounts nothing on top"
    assert lines[-2:] == [
        "files on the volume: ",
        "directories on the volume: ./run/slurmstack/gpu ./usr/lib/x86_64-linux-gnu/glibc-hwcaps/x86-64-v2 ",
    ]
