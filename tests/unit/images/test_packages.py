"""Further packages in the jail, and CUDA without a driver: what is asked for and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.jail import packages


def test_nothing_is_asked_of_apt_where_nothing_is_wanted(tmp_path: Path) -> None:
    packages.install([], cuda=False, run=lambda _: pytest.fail("it was"), root=tmp_path)


DEB822 = """\
Types: deb
URIs: http://deb.example/debian
Suites: trixie trixie-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://other.example
Suites: stable
Components: main
"""


def test_components_are_added_to_debian_s_own_sources_only_and_once() -> None:
    added = packages.with_components(DEB822, "trixie")
    assert added == DEB822.replace("Components: main\n", "Components: main contrib non-free\n", 1)
    assert packages.with_components(added, "trixie") == added

    lines = "# deb x trixie main\ndeb [trusted=yes] http://a trixie-security main non-free\ndeb http://b stable main\n"
    wanted = lines.replace("main non-free", "main non-free contrib")
    assert packages.with_components(lines, "trixie") == wanted


def test_the_reason_is_one_line_and_the_status_says_that_it_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise packages.RefusedError("no package vom")

    monkeypatch.setattr(packages, "install", refuse)
    assert packages.main(["vom"]) == 1
    assert capsys.readouterr().err == "slurmstack: no package vom\n"
