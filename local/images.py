"""The images of a cluster, built on this machine without a registry and packed for `ctr images import`.

    cache/buildah/            the image store: unchanged steps of a Containerfile are not run again
    cache/images/<tag>/       images.tar of one build, named by its sources

A change of a program in images/ costs seconds; the first build of a Slurm version about three minutes on two cores.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from local import debian, files, paths, shell
from local.build import COREDNS_IMAGE, KUBE_STATE, PAUSE_IMAGE, Binaries, directory_of, ensure_module
from local.buildah import Buildah
from local.errors import LocalError
from local.tools import ensure_tools
from slurm.images import DEBIAN_SUITES, DEFAULT_REGISTRY, NO_EXTRAS, ROLES, JailExtras, image_reference, image_tag
from slurm.local_cluster import KUBE_STATE_IMAGE

if TYPE_CHECKING:
    from local.report import Report

SOURCES = paths.SOURCES.parent / "images"
KEEP_BUILDS = 4
"""Builds whose archives stay: two Slurm versions, now and before the last change."""

_STAGES = ("common", "spank", *ROLES)
_ARCHIVE = "images.tar"


@dataclass(frozen=True, kw_only=True)
class ImageSet:
    """Images that are ready to be imported."""

    slurm_version: str
    tag: str
    extras: JailExtras = NO_EXTRAS
    archive: Path
    """An OCI archive with the images of all roles, for `ctr -n k8s.io images import`."""

    def reference(self, role: str) -> str:
        """Give the full name of the image of one role."""
        tag = self.extras.tag(self.tag) if role == "jail" else self.tag
        return image_reference(role, registry=DEFAULT_REGISTRY, tag=tag)

    @property
    def references(self) -> tuple[str, ...]:
        """The names that an import makes."""
        return tuple(self.reference(role) for role in ROLES)


def ensure_images(
    report: Report, slurm_version: str = "24.11", extras: JailExtras = NO_EXTRAS, *, in_store: bool = False
) -> ImageSet:
    """Return the images of the present sources; build what is missing. Instant when nothing has changed.

    `in_store`: not only packed, but in the store, from which they are named and pushed. Another version of this program
    that builds on the same machine may drop those that it does not know.

    Raises LocalError where a program is missing, the disk is full, or a step of the Containerfile fails.
    """
    if slurm_version not in DEBIAN_SUITES:
        raise LocalError(f"no images for Slurm {slurm_version}", f"known versions: {', '.join(DEBIAN_SUITES)}")
    tag = image_tag(slurm_version)
    archive = paths.cache_images() / extras.tag(tag) / _ARCHIVE
    images = ImageSet(slurm_version=slurm_version, tag=tag, extras=extras, archive=archive)
    if in_store or not archive.exists():
        with image_store(report) as buildah:
            if not archive.exists() or (in_store and not all(map(buildah.has_image, images.references))):
                _build(report, buildah, images)
    os.utime(archive.parent)
    return images


def _build(report: Report, buildah: Buildah, images: ImageSet) -> None:
    apt = debian.read_apt_settings()
    base = _ensure_base(report, buildah, images.slurm_version, apt)
    _build_stages(report, buildah, images, apt, base)
    _pack(report, buildah, images)
    _forget_old(buildah, base)


@contextmanager
def image_store(report: Report) -> Iterator[Buildah]:
    """Give the image store, with nobody else building in it meanwhile: who waits then finds everything there."""
    paths.close()
    buildah = Buildah(tools=ensure_tools(report), directory=paths.cache() / "buildah")
    lock = paths.cache() / "buildah.lock"
    waiting = "waiting for process {} on this machine, which builds images: some minutes; until then nothing is changed"
    with files.hold(lock, lambda: report.info(waiting.format(lock.read_text(encoding="ascii")))):
        lock.write_text(str(os.getpid()), encoding="ascii")
        paths.cache_images().mkdir(exist_ok=True)
        buildah.prepare()
        yield buildah


def _ensure_base(report: Report, buildah: Buildah, slurm_version: str, apt: debian.AptSettings) -> str:
    suite = DEBIAN_SUITES[slurm_version]
    reference = f"localhost/slurmstack/base:{suite}-{debian.base_key(suite, apt)}"
    if not buildah.has_image(reference):
        with report.step(f"Make the base file system, Debian {suite}") as step:
            count = 0

            def on_line(line: str) -> None:
                nonlocal count
                count += 1
                step.progress(count, 0, line.removeprefix("I: ")[:60])

            env = debian.base_environment(suite, apt, buildah.tools)
            buildah.commit_directory(debian.BASE_SCRIPT, reference, env, on_line)
    return reference


def _build_stages(report: Report, buildah: Buildah, images: ImageSet, apt: debian.AptSettings, base: str) -> None:
    """Build all targets: the shared stages first, then the large jail beside the small ones."""
    volumes = debian.write_build_settings(apt, buildah.directory / "apt")
    arguments = [f"APT_CONFIG={debian.BUILD_SETTINGS}/apt.conf"]
    with (
        report.step(f"Build the images of Slurm {images.slurm_version}") as step,
        shell.threads(2) as pool,
    ):
        done = 0

        def build(*targets: str) -> None:
            nonlocal done
            for target in targets:
                buildah.build(
                    context=SOURCES, target=target, base=base, reference=_stage_reference(images, target),
                    arguments=[*arguments, *(images.extras.arguments if target == "jail" else ())],
                    volumes=volumes, on_line=partial(tell, target),
                )  # fmt: skip
                done += 1

        def tell(target: str, line: str) -> None:
            step.progress(done, len(_STAGES), f"{target}: {line[:60]}")

        build("common")
        plugin, controller = pool.submit(build, "spank"), pool.submit(build, "controller")
        plugin.result()
        jail, pods = (
            pool.submit(build, "jail"),
            pool.submit(build, "worker", "login", "accounting", "database", "rest", "exporter", "monitoring"),
        )
        for future in (controller, pods, jail):
            future.result()


def _stage_reference(images: ImageSet, target: str) -> str:
    if target in ROLES:
        return images.reference(target)
    return f"{DEFAULT_REGISTRY}/stage-{target}:{images.tag}"


def _pack(report: Report, buildah: Buildah, images: ImageSet) -> None:
    directory = images.archive.parent
    with files.whole_directory(directory) as work, report.step("Pack the images") as step:
        archive = work / _ARCHIVE
        buildah.save(images.references, archive, lambda count: step.progress(count, len(ROLES), ROLES[count]))
        step.note(f"{archive.stat().st_size / 1e6:.0f} MB")
        shutil.rmtree(directory, ignore_errors=True)  # one without an archive


def _forget_old(buildah: Buildah, base: str) -> None:
    """Drop builds beyond the last few: archives, images of the store, and layers that nothing uses any more."""
    found = [archive.parent for archive in paths.cache_images().glob(f"*/{_ARCHIVE}")]
    builds = sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)
    for path in builds[KEEP_BUILDS:]:
        shutil.rmtree(path, ignore_errors=True)
    tags = [path.name for path in builds[:KEEP_BUILDS]]
    buildah.remove([name for name in buildah.images() if _is_old(name, tags, base)])


def _is_old(name: str, kept: Sequence[str], base: str) -> bool:
    """Where a build's jail has something besides, the tag of its other roles is the beginning of its name."""
    if "/base:" in name:
        return name != base and name.rpartition("-")[0] == base.rpartition("-")[0]  # of the same Debian suite
    return not any(build.startswith(name.rpartition(":")[2]) for build in kept)


# Images of one static program each: pause, CoreDNS, and kube-state-metrics where a stack asks for it.

_OF_A_PROGRAM = {"pause": PAUSE_IMAGE, "coredns": COREDNS_IMAGE}

_PROGRAM_SCRIPT = """\
install --mode=755 "$PROGRAM" "$ROOT/"
buildah config --user 65534:65534 --workingdir / --entrypoint "[\\"/${PROGRAM##*/}\\"]" "$container"
"""
"""User 65534 (nobody): none of them needs root."""


def system_archives(binaries: Binaries) -> dict[str, Path]:
    """Give the archive of each program, which may not be there yet; its name follows from the program's inputs."""
    sources = {program: Path(binaries.path(program)) for program in _OF_A_PROGRAM}
    return {program: paths.cache_images() / f"{source.parent.name}.tar" for program, source in sources.items()}


def ensure_system_archives(report: Report, binaries: Binaries) -> None:
    """Write the archives of pause and CoreDNS, once per program built."""
    for program, archive in system_archives(binaries).items():
        if not archive.exists():
            with image_store(report) as store:
                _pack_program(store, Path(binaries.path(program)), _OF_A_PROGRAM[program], archive)


def ensure_kube_state(report: Report) -> Path:
    """Build kube-state-metrics and write its archive, once per set of inputs, and name it."""
    archive = paths.cache_images() / f"{directory_of(KUBE_STATE).name}.tar"
    if not archive.exists():
        # One at a time, though several stacks may be applied: the first build to end removes Go's caches.
        with image_store(report) as store:
            if not archive.exists():
                program = ensure_module(KUBE_STATE, report) / "kube-state-metrics"
                _pack_program(store, program, KUBE_STATE_IMAGE, archive)
    return archive


def _pack_program(store: Buildah, program: Path, name: str, archive: Path) -> None:
    """Make an image of a program, and write it to an archive."""
    with tempfile.TemporaryDirectory(prefix=files.UNFINISHED, dir=archive.parent) as work:
        unfinished = Path(work) / "image.tar"
        store.commit_directory(_PROGRAM_SCRIPT, name, {"PROGRAM": str(program)}, lambda _: None)
        store.save([name], unfinished, lambda _: None)
        store.remove([name])
        unfinished.rename(archive)
