"""Images of one static program each, built here: pause, CoreDNS, and kube-state-metrics where a stack asks for it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from local import build, files, images, paths, versions
from local.build import Binaries
from slurm.local_cluster import KUBE_STATE_IMAGE

if TYPE_CHECKING:
    from local.buildah import Buildah
    from local.report import Report

_PROGRAMS = {"pause": versions.PAUSE_IMAGE, "coredns": versions.COREDNS_IMAGE}

_SCRIPT = """\
install --mode=755 "$PROGRAM" "$ROOT/"
buildah config --user 65534:65534 --workingdir / --entrypoint "[\\"/${PROGRAM##*/}\\"]" "$container"
"""
"""User 65534 (nobody): none of them needs root."""


def places(binaries: Binaries) -> dict[str, Path]:
    """Give the archive of each program, which may not be there yet; its name follows from the program's inputs."""
    sources = {program: Path(binaries.path(program)) for program in _PROGRAMS}
    return {program: paths.cache_images() / f"{source.parent.name}.tar" for program, source in sources.items()}


def ensure_system_archives(report: Report, binaries: Binaries) -> None:
    """Write the archives of pause and CoreDNS, once per program built."""
    for program, archive in places(binaries).items():
        if not archive.exists():
            with images.image_store(report) as store:
                _pack(store, Path(binaries.path(program)), _PROGRAMS[program], archive)


def ensure_kube_state(report: Report) -> Path:
    """Build kube-state-metrics and write its archive, once per set of inputs, and name it."""
    archive = paths.cache_images() / f"{build.directory_of(build.KUBE_STATE).name}.tar"
    if not archive.exists():
        # One at a time, though several stacks may be applied: the first build to end removes Go's caches.
        with images.image_store(report) as store:
            if not archive.exists():
                program = build.ensure_module(build.KUBE_STATE, report) / "kube-state-metrics"
                _pack(store, program, KUBE_STATE_IMAGE, archive)
    return archive


def _pack(store: Buildah, program: Path, name: str, archive: Path) -> None:
    """Make an image of a program, and write it to an archive."""
    with tempfile.TemporaryDirectory(prefix=files.UNFINISHED, dir=archive.parent) as work:
        unfinished = Path(work) / "image.tar"
        store.commit_directory(_SCRIPT, name, {"PROGRAM": str(program)}, lambda _: None)
        store.save([name], unfinished, lambda _: None)
        store.remove([name])
        unfinished.rename(archive)
