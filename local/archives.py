"""Images of one static program each, built here: pause, CoreDNS, and kube-state-metrics where a stack asks for it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from local import build, files, images, lock, paths, versions
from slurm.local_cluster import KUBE_STATE_IMAGE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from local.build import Binaries
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
    found = places(binaries)
    _pack(report, [(Path(binaries.path(program)), _PROGRAMS[program], found[program]) for program in found])


def ensure_kube_state(report: Report) -> Path:
    """Build kube-state-metrics and write its archive, once per set of inputs, and name it."""
    archive = paths.cache_images() / f"{build.directory_of(build.KUBE_STATE).name}.tar"
    if not archive.exists():
        paths.cache_images().mkdir(parents=True, exist_ok=True)
        # Several stacks may be applied at a time, and the first build to end removes Go's caches.
        waiting = "waiting for another build of kube-state-metrics on this machine"
        with lock.hold(paths.cache_images() / ".kube-state.lock", lambda: report.info(waiting)):
            directory = build.ensure_module(build.KUBE_STATE, report)
            _pack(report, [(directory / program, KUBE_STATE_IMAGE, archive) for program in build.KUBE_STATE.programs])
    return archive


def _pack(report: Report, wanted: Sequence[tuple[Path, str, Path]]) -> None:
    """Write the archives that are missing; each has a program, and the name of the image."""
    missing = [(program, name, archive) for program, name, archive in wanted if not archive.exists()]
    if not missing:
        return
    paths.cache_images().mkdir(parents=True, exist_ok=True)
    with (
        images.image_store(report) as store,
        tempfile.TemporaryDirectory(prefix=files.UNFINISHED, dir=paths.cache_images()) as work,
    ):
        for program, name, archive in missing:
            unfinished = Path(work) / "image.tar"
            store.commit_directory(_SCRIPT, name, {"PROGRAM": str(program)}, lambda _: None)
            store.save([name], unfinished, lambda _: None)
            store.remove([name])
            unfinished.rename(archive)
