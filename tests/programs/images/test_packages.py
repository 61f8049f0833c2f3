"""Further packages in the jail, and CUDA without a driver: real apt and dpkg, packages and an archive of our own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from images.jail import packages
from tests.fakes.debian import PlayedDebian

LIBRARIES = "usr/lib/x86_64-linux-gnu"
CURRENT = f"{LIBRARIES}/nvidia/current"
needs_apt = pytest.mark.skipif(
    os.geteuid() != 0 or not all(shutil.which(name) for name in ("apt-get", "dpkg-deb")),
    reason="dpkg unpacks packages as root, on a Debian",
)


@pytest.fixture
def debian(tmp_path: Path) -> PlayedDebian:
    """What matters of Debian 13: CUDA depends on libraries of the driver, and these on what diverts OpenGL's."""
    debian = PlayedDebian(tmp_path)
    debian.add("bc", files={"usr/bin/bc": b"bc"})
    debian.add("vim", files={"usr/bin/vim": b"vim"}, Recommends="vim-doc", Provides="editor")
    debian.add("vim-doc", files={"usr/share/vim/doc": b"doc"})
    debian.add("nvidia-cuda-toolkit", "non-free", Depends="nvidia-cuda-dev", Recommends="nsight")
    debian.add(
        "nvidia-cuda-dev", "non-free", Depends="libnvidia-ml-dev, libcuda1 (>= 550) | libcuda.so.1 (>= 550)",
        files={f"{LIBRARIES}/stubs/libcuda.so": b"stub", f"{LIBRARIES}/libnvidia-container.so.1": b"tools"},
    )  # fmt: skip
    debian.add("libnvidia-ml-dev", "non-free", Depends="libnvidia-ml1 (>= 550) | libnvidia-ml.so.1 (>= 550)")
    debian.add("libnccl2", "contrib", files={f"{LIBRARIES}/libnccl.so.2": b"nccl"})
    debian.add("libnccl-dev", "contrib", Depends="libnccl2")
    debian.add("nsight", "non-free")
    debian.add("glx-diversions", "contrib")
    for name, library in (("libcuda1", "libcuda"), ("libnvidia-ml1", "libnvidia-ml")):
        files: dict[str, bytes | Path] = {
            f"{CURRENT}/{library}.so.550.1": b"driver",
            f"{CURRENT}/{library}.so.1": Path(f"{library}.so.550.1"),
            f"usr/share/doc/{name}/copyright": b"not free",
        }
        debian.add(name, "non-free", Version="550.1", Depends="glx-diversions", files=files)
    return debian


@needs_apt
def test_cuda_comes_without_a_driver_and_without_what_is_recommended(debian: PlayedDebian) -> None:
    packages.install(["bc"], cuda=True, run=debian.run, root=debian.root)

    expected = {*packages.CUDA, "nvidia-cuda-dev", "libnvidia-ml-dev", "bc", "slurmstack-machines-driver"}
    assert debian.installed() == expected
    assert (debian.root / LIBRARIES / "stubs/libcuda.so").exists(), "what programs are linked with"
    assert (debian.root / LIBRARIES / "libnvidia-container.so.1").exists(), "no part of a driver"
    sources = (debian.root / "etc/apt/sources.list").read_text()
    assert sources.split()[-3:] == ["main", "contrib", "non-free"], "users need them for updates"


@needs_apt
def test_a_driver_that_somebody_installs_later_brings_none_of_its_libraries(debian: PlayedDebian) -> None:
    packages.install([], cuda=True, run=debian.run, root=debian.root)
    flat = {f"{LIBRARIES}/{name}.so.1": b"driver" for name in ("libcuda", "libnvidia-cfg", "libnvidia-compiler")}
    debian.add("another-driver", files={**flat, f"{LIBRARIES}/libnvcuvid.so": Path("libnvcuvid.so.1")})

    debian.run(["apt-get", "update"])
    debian.run(["apt-get", "install", "--yes", "libcuda1", "libnvidia-ml1", "another-driver"])

    assert {"libcuda1", "libnvidia-ml1", "another-driver"} <= debian.installed()
    assert (debian.root / "usr/share/doc/libcuda1/copyright").exists()
    here = [path for path in debian.root.rglob("*.so*") if not path.is_dir()]
    names = {str(path.relative_to(debian.root / LIBRARIES)) for path in here if LIBRARIES in str(path)}
    assert names == {"libnccl.so.2", "libnvidia-container.so.1", "stubs/libcuda.so"}


@needs_apt
def test_packages_alone_change_neither_sources_nor_what_dpkg_unpacks(debian: PlayedDebian) -> None:
    before = (debian.root / "etc/apt/sources.list").read_text()
    packages.install(["vim"], cuda=False, run=debian.run, root=debian.root)

    assert debian.installed() == {"vim"}
    assert (debian.root / "etc/apt/sources.list").read_text() == before
    assert not list((debian.root / "etc/dpkg/dpkg.cfg.d").iterdir())


@needs_apt
@pytest.mark.parametrize("name", ["no-such-thing", "editor", "libnccl2", "v.m", "vim-"])
def test_a_package_that_does_not_exist_is_named_and_nothing_is_installed(debian: PlayedDebian, name: str) -> None:
    with pytest.raises(
        packages.RefusedError, match=f"images.jail.packages: Debian trixie has no package {name} in main"
    ):
        packages.install(["bc", name], cuda=False, run=debian.run, root=debian.root)
    assert not debian.installed()


@needs_apt
def test_an_archive_that_does_not_answer_is_not_taken_for_one_without_the_package(debian: PlayedDebian) -> None:
    (debian.root / "etc/apt/sources.list").write_text("deb [trusted=yes] http://127.0.0.1:1/debian trixie main\n")
    with pytest.raises(subprocess.CalledProcessError) as error:
        packages.install(["bc"], cuda=False, run=debian.run, root=debian.root)
    assert error.value.cmd[:2] == ["apt-get", "update"]


DEB822 = """\
Types: deb
URIs: http://deb.example/debian
Suites: trixie trixie-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""


def test_components_are_added_to_debian_s_own_sources_only_and_once() -> None:
    added = packages.with_components(DEB822, "trixie")
    assert added == DEB822.replace("Components: main\n", "Components: main contrib non-free\n")
    assert packages.with_components(added, "trixie") == added
    other = DEB822.replace("trixie", "stable")
    assert packages.with_components(other, "trixie") == other

    lines = "# deb x trixie main\ndeb [trusted=yes] http://a trixie-security main non-free\ndeb http://b stable main\n"
    wanted = lines.replace("main non-free", "main non-free contrib")
    assert packages.with_components(lines, "trixie") == wanted
