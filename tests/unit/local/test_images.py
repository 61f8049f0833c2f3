"""Builds are named by their inputs, and a second one has nothing to do."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from local import debian, images
from local.errors import LocalError
from local.report import PlainReport
from slurm.images import ROLES

APT = debian.AptSettings(mirror="http://mirror.example/debian")


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlainReport:
    monkeypatch.setenv("SLURMSTACK_LOCAL_DIR", str(tmp_path))
    monkeypatch.setattr(debian, "read_apt_settings", lambda: APT)
    return PlainReport(io.StringIO())


def build_writes_an_archive(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    built: list[str] = []

    def build(_report: object, found: images.ImageSet, *_: object) -> None:
        built.append(found.tag)
        found.archive.parent.mkdir(parents=True)
        found.archive.write_bytes(b"")

    monkeypatch.setattr(images, "_build", build)
    return built


def test_a_second_run_builds_nothing(report: PlainReport, monkeypatch: pytest.MonkeyPatch) -> None:
    built = build_writes_an_archive(monkeypatch)

    first = images.ensure_images(report)
    second = images.ensure_images(report)

    assert first == second
    assert len(built) == 1


def test_changed_sources_are_built_again_beside_the_old_ones(
    report: PlainReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = build_writes_an_archive(monkeypatch)
    first = images.ensure_images(report)
    monkeypatch.setattr(images, "image_tag", lambda version: f"{version}-changed")

    second = images.ensure_images(report)

    assert built == [first.tag, "24.11-changed"]
    assert first.archive.exists()
    assert second.archive != first.archive


def test_names_are_those_that_the_pods_ask_for(report: PlainReport, monkeypatch: pytest.MonkeyPatch) -> None:
    build_writes_an_archive(monkeypatch)

    found = images.ensure_images(report, "26.05")

    assert found.tag.startswith("26.05-")
    assert found.reference("worker") == f"localhost/slurmstack/worker:{found.tag}"
    assert len(found.references) == len(ROLES)


def test_an_unknown_version_names_the_known_ones(report: PlainReport) -> None:
    with pytest.raises(LocalError) as error:
        images.ensure_images(report, "23.02")

    assert "24.11" in error.value.hint


def test_a_full_disk_is_told_before_anything_is_built(report: PlainReport, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = 1_000_000_000

    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage)

    with pytest.raises(LocalError, match="GB are free"):
        images.ensure_images(report)
