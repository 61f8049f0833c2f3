"""The images of the cluster itself: pause and CoreDNS, each one static program that was built here."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from local import files, images, paths, versions

if TYPE_CHECKING:
    from local.build import Binaries
    from local.report import Report

_PROGRAMS = {"pause": versions.PAUSE_IMAGE, "coredns": versions.COREDNS_IMAGE}

_SCRIPT = """\
install --mode=755 "$PROGRAM" "$ROOT/"
buildah config --user 65534:65534 --workingdir / --entrypoint "[\\"/${PROGRAM##*/}\\"]" "$container"
"""
"""User 65534 (nobody): neither program needs root."""


def places(binaries: Binaries) -> dict[str, Path]:
    """Give the archive of each program, which may not be there yet; its name follows from the program's inputs."""
    sources = {program: Path(binaries.path(program)) for program in _PROGRAMS}
    return {program: paths.cache_images() / f"{source.parent.name}.tar" for program, source in sources.items()}


def ensure_system_archives(report: Report, binaries: Binaries) -> None:
    """Write the archives of pause and CoreDNS, once per program built."""
    missing = {program: archive for program, archive in places(binaries).items() if not archive.exists()}
    if not missing:
        return
    paths.cache_images().mkdir(parents=True, exist_ok=True)
    with (
        images.image_store(report) as store,
        tempfile.TemporaryDirectory(prefix=files.UNFINISHED, dir=paths.cache_images()) as work,
    ):
        for program, archive in missing.items():
            name, unfinished = _PROGRAMS[program], Path(work) / "image.tar"
            store.commit_directory(_SCRIPT, name, {"PROGRAM": binaries.path(program)}, lambda _: None)
            store.save([name], unfinished, lambda _: None)
            store.remove([name])
            unfinished.rename(archive)
