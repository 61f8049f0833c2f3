from __future__ import annotations

import re
from pathlib import Path

import pytest

from local import build, paths
from local.errors import LocalError
from local.report import PlainReport
from slurm.local_cluster import KUBE_STATE_IMAGE


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


def test_a_failed_build_quotes_the_complaint_and_not_the_package_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURMSTACK_LOCAL_DIR", str(tmp_path))
    tail = ["k8s.io/api", "k8s.io/klog/v2", "# k8s.io/klog/v2", "./klog.go:3: undefined: nothing"]
    monkeypatch.setattr(build, "follow", lambda *_, **__: (1, tail))
    monkeypatch.setattr(build, "find_go", lambda: "go")
    with pytest.raises(LocalError, match=r"kubernetes failed: # k8s\.io/klog/v2; \./klog\.go:3: undefined: nothing"):
        build.ensure_module(build.MODULES[0], PlainReport())
