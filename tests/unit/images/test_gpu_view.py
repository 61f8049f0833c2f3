"""The GPU driver, found in the pod and shown in the jail."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.common.gpu_view import find_driver

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


def test_what_the_runtime_has_mounted_is_found_and_nothing_of_the_image(pod: Path) -> None:
    driver = find_driver(points(pod), pod)

    assert set(driver.libraries) == {"libcuda.so.570.1", "libnvidia-ml.so.570.1"}
    assert driver.libraries["libcuda.so.570.1"] == pod / LIBRARIES / "libcuda.so.570.1"
    assert driver.links == {"libcuda.so.1": "libcuda.so.570.1", "libcuda.so": "libcuda.so.570.1"}
    assert set(driver.programs) == {"nvidia-smi"}
    assert driver.sockets == ["/run/nvidia-persistenced"]


def test_a_driver_that_is_mounted_as_one_directory_is_found(tmp_path: Path) -> None:
    for name in ("lib64/libcuda.so.570.1", "lib64/libnvidia-ml.so.570.1", "bin/nvidia-smi"):
        (tmp_path / "usr/local/nvidia" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "usr/local/nvidia" / name).touch()

    driver = find_driver(["/", "/usr/local/nvidia"], tmp_path)

    assert set(driver.libraries) == {"libcuda.so.570.1", "libnvidia-ml.so.570.1"}
    assert set(driver.programs) == {"nvidia-smi"}
