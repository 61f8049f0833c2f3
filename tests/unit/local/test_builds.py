"""Builds of programs and images are named by their inputs, and a second one has nothing to do."""

from __future__ import annotations

import io
import os
import re
import subprocess
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from local import build, debian, images, paths
from local.buildah import Buildah
from local.errors import LocalError
from local.report import PlainReport
from local.tools import Tools
from slurm.images import JailExtras
from slurm.local_cluster import KUBE_STATE_IMAGE

APT = debian.AptSettings(mirror="http://mirror.example/debian")


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlainReport:
    monkeypatch.setenv("SLURMSTACK_LOCAL_DIR", str(tmp_path))
    monkeypatch.setattr(debian, "read_apt_settings", lambda: APT)
    (tmp_path / "cache" / "images").mkdir(parents=True)
    monkeypatch.setattr(images, "image_store", lambda _: nullcontext(SimpleNamespace(has_image=lambda _: True)))
    return PlainReport(io.StringIO())


def build_writes_an_archive(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    built: list[str] = []

    def build(_report: object, _store: object, found: images.ImageSet) -> None:
        built.append(found.tag)
        found.archive.parent.mkdir(parents=True)
        found.archive.write_bytes(b"")

    monkeypatch.setattr(images, "_build", build)
    return built


def test_who_waits_for_another_build_says_for_which_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SLURMSTACK_LOCAL_DIR", str(tmp_path))
    monkeypatch.setattr(images, "ensure_tools", lambda _: None)
    monkeypatch.setattr(Buildah, "prepare", lambda _: None)
    said = io.StringIO()

    def wait() -> None:
        with images.image_store(PlainReport(said)):
            pass

    with images.image_store(PlainReport(io.StringIO())):
        other = threading.Thread(target=wait)
        other.start()
        while not said.getvalue():
            time.sleep(0.01)
    other.join()
    assert said.getvalue().startswith(f"waiting for process {os.getpid()} on this machine, which builds images")


def test_a_second_run_builds_nothing(report: PlainReport, monkeypatch: pytest.MonkeyPatch) -> None:
    built = build_writes_an_archive(monkeypatch)

    first = images.ensure_images(report)
    second = images.ensure_images(report)

    assert first == second
    assert len(built) == 1


def test_only_the_jail_is_built_with_what_it_has_besides(report: PlainReport, tmp_path: Path) -> None:
    told: dict[str, list[str]] = {}

    def build(*, target: str, reference: str, arguments: list[str], **_: object) -> None:
        told[f"{target} {reference}"] = arguments

    store: Any = SimpleNamespace(directory=tmp_path, build=build)
    extras = JailExtras(packages=("bc", "vim"), cuda=True)
    found = images.ImageSet(slurm_version="24.11", tag="24.11-x", extras=extras, archive=tmp_path / "key/images.tar")
    images._build_stages(report, store, found, APT, "base")

    assert told.pop(f"jail {found.reference('jail')}")[1:] == ["JAIL_PACKAGES=bc vim", "JAIL_CUDA=1"]
    assert not any(arguments[1:] for arguments in told.values())


def test_a_failed_build_leaves_no_archive_and_nothing_beside_it(
    report: PlainReport, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: object) -> None:
        raise LocalError("the disk is full")

    def build(_report: PlainReport, _store: object, found: images.ImageSet) -> None:
        images._pack(report, SimpleNamespace(save=fail), found)  # type: ignore[arg-type]

    monkeypatch.setattr(images, "_build", build)

    with pytest.raises(LocalError, match="the disk is full"):
        images.ensure_images(report)

    assert not list((tmp_path / "cache/images").iterdir())


def test_where_security_updates_do_not_answer_it_is_said_how_to_do_without() -> None:
    failure = Buildah(tools=Tools(tree=None), directory=Path("/x"))._failure
    assert f"{debian.SECURITY_VARIABLE} " in failure(["buildah", "build"], "E: Failed to fetch /debian-security").hint
    assert debian.SECURITY_VARIABLE not in failure(["buildah", "build"], "E: no space").hint


def prepared(directory: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> Buildah:
    buildah = Buildah(tools=Tools(tree=None), directory=directory)
    printed = subprocess.CompletedProcess([], 0, f"buildah version {version} (image-spec 1.1.0)", "")
    monkeypatch.setattr(Buildah, "_run", lambda *_arguments, **_options: printed)
    buildah.prepare()
    return buildah


def test_newer_releases_find_the_network_program_that_they_never_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    buildah = prepared(tmp_path, "1.39.3", monkeypatch)
    assert (tmp_path / "helpers" / "netavark").exists()
    settings = Path(buildah.environment()["CONTAINERS_CONF"]).read_text(encoding="utf-8")
    assert f'helper_binaries_dir = ["{tmp_path}/helpers"]' in settings
    assert f'network_config_dir = "{tmp_path}/networks"' in settings


def test_the_pinned_versions_are_those_of_the_go_modules() -> None:
    kubernetes = (paths.SOURCES / "kubernetes/go.mod").read_text()
    coredns = (paths.SOURCES / "coredns/go.mod").read_text()
    assert f"require k8s.io/kubernetes {build.KUBERNETES_VERSION}\n" in kubernetes
    assert f"require github.com/coredns/coredns {build.COREDNS_VERSION}\n" in coredns
    kube_state = (build.KUBE_STATE.source / "go.mod").read_text()
    assert f"require k8s.io/kube-state-metrics/v2 {build.KUBE_STATE_VERSION}\n" in kube_state
    assert KUBE_STATE_IMAGE.endswith(f":{build.KUBE_STATE_VERSION}")


def test_the_oldest_accepted_go_can_build_every_module() -> None:
    for module in (*build.MODULES, build.KUBE_STATE):
        line = re.search(r"^go (\d+)\.(\d+)", (module.source / "go.mod").read_text(), re.MULTILINE)
        assert line is not None
        assert (int(line[1]), int(line[2])) <= build.GO_MINIMUM


def test_a_changed_source_or_flag_or_machine_is_built_anew(tmp_path: Path) -> None:
    (tmp_path / "main.go").write_text("package main")
    first = build.module_key(tmp_path, ["-X a=1"], "x86_64")
    assert build.module_key(tmp_path, ["-X a=1"], "x86_64") == first
    assert build.module_key(tmp_path, ["-X a=2"], "x86_64") != first
    assert build.module_key(tmp_path, ["-X a=1"], "aarch64") != first
    (tmp_path / "main.go").write_text("package main // changed")
    assert build.module_key(tmp_path, ["-X a=1"], "x86_64") != first


def test_without_go_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_args, **_kwargs: None)
    with pytest.raises(LocalError) as caught:
        build.find_go()
    assert "install Go 1.24 or newer" in str(caught.value)
