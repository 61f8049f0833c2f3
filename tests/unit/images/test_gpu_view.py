"""The GPU driver, found in the pod and shown in the jail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from images.common.command import Result
from images.common.gpu_view import bind_driver, find_driver
from images.common.jail_view import JailViewError
from tests.fakes.commands import FakeRunner

REPOSITORY = Path(__file__).resolve().parents[3]
LIBRARIES = "usr/lib/x86_64-linux-gnu"


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    """A root file system as NVIDIA's runtime leaves it; every file is a mount of its own."""
    root = tmp_path / "pod"
    for name in (
        f"{LIBRARIES}/libcuda.so.570.1", f"{LIBRARIES}/libnvidia-ml.so.570.1", "usr/bin/nvidia-smi",
        "usr/lib/firmware/nvidia/570.1/gsp_ga10x.bin", "run/nvidia-persistenced/socket", "etc/hosts",
        "usr/lib/i386-linux-gnu/libcuda.so.570.1", "jail/run/slurmstack/gpu/lib/libcuda.so.1", "usr/share/nvidia/x.bin",
    ):  # fmt: skip
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / LIBRARIES / "libcuda.so.1").symlink_to("libcuda.so.570.1")
    (root / LIBRARIES / "libcuda.so").symlink_to("libcuda.so.1")
    (root / LIBRARIES / "libz.so.1").symlink_to("libz.so.1.3")
    (root / LIBRARIES / "libz.so.1.3").write_text("of the image")
    return root


def points(root: Path) -> list[str]:
    files = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    return ["/", "/proc", *(f"/{path.relative_to(root)}" for path in files if path.name != "libz.so.1.3")]


def test_libraries_and_programs_are_found_by_their_mounts(pod: Path) -> None:
    driver = find_driver(points(pod), pod)

    assert set(driver.libraries) == {"libcuda.so.570.1", "libnvidia-ml.so.570.1"}
    assert driver.libraries["libcuda.so.570.1"] == pod / LIBRARIES / "libcuda.so.570.1"
    assert set(driver.programs) == {"nvidia-smi"}
    assert driver.sockets == ["/run/nvidia-persistenced"]


def test_links_to_the_driver_come_along_and_those_of_the_image_do_not(pod: Path) -> None:
    driver = find_driver(points(pod), pod)

    assert driver.links == {"libcuda.so.1": "libcuda.so.570.1", "libcuda.so": "libcuda.so.570.1"}


def test_a_library_that_was_copied_and_not_mounted_is_found_by_its_name(pod: Path) -> None:
    assert set(find_driver(["/"], pod).libraries) == {"libcuda.so.570.1", "libnvidia-ml.so.570.1"}


def test_a_driver_that_is_mounted_as_one_directory_is_found(tmp_path: Path) -> None:
    for name in ("lib64/libcuda.so.570.1", "lib64/libnvidia-ml.so.570.1", "bin/nvidia-smi"):
        (tmp_path / "usr/local/nvidia" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "usr/local/nvidia" / name).touch()

    driver = find_driver(["/", "/usr/local/nvidia"], tmp_path)

    assert set(driver.libraries) == {"libcuda.so.570.1", "libnvidia-ml.so.570.1"}
    assert set(driver.programs) == {"nvidia-smi"}


def test_a_machine_without_gpus_gets_nothing(tmp_path: Path) -> None:
    (tmp_path / LIBRARIES).mkdir(parents=True)
    (tmp_path / LIBRARIES / "libc.so.6").touch()
    (tmp_path / "mountinfo").write_text("1 0 0:1 / / rw - overlay overlay rw\n2 1 0:1 / /etc/hosts rw - ext4 x rw\n")
    runner, jail = FakeRunner(), tmp_path / "jail"
    jail.mkdir()

    assert not bind_driver(jail, runner, print, root=tmp_path, mountinfo=tmp_path / "mountinfo")
    assert runner.commands == []
    assert list(jail.iterdir()) == []


def test_nothing_is_written_where_the_file_system_in_memory_could_not_be_mounted(pod: Path, tmp_path: Path) -> None:
    (tmp_path / "mountinfo").write_text("1 0 0:1 / / rw - overlay overlay rw\n")
    runner = FakeRunner({"mount -t tmpfs": Result(code=32, stderr="permission denied")})
    (tmp_path / "volume").mkdir()

    with pytest.raises(JailViewError, match="CAP_SYS_ADMIN"):
        bind_driver(tmp_path / "volume", runner, print, root=pod, mountinfo=tmp_path / "mountinfo")

    assert [path for path in (tmp_path / "volume").rglob("*") if not path.is_dir()] == []


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
