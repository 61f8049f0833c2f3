"""What comes from Debian: the base image by what this machine's apt knows, and programs that the machine lacks."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from local import debian, tools
from local.errors import LocalError

TARGETS = """\
http://mirror.example/debian/|bookworm|main
http://mirror.example/debian/|bookworm|contrib
http://mirror.example/security/|bookworm-security|main
http://other.example/tools/|nodistro|main
"""
RELEASE = {"ID": "debian", "VERSION_CODENAME": "bookworm"}


@pytest.fixture
def apt(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Answers of apt that a test may change."""
    answers = {"apt-get": TARGETS, "apt-config": ""}
    monkeypatch.delenv(debian.MIRROR_VARIABLE, raising=False)
    monkeypatch.delenv(debian.SECURITY_VARIABLE, raising=False)
    monkeypatch.setattr(debian, "_apt_output", lambda *command: answers[command[0]])
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: RELEASE)
    return answers


@pytest.mark.usefixtures("apt")
def test_the_machines_own_mirror_is_used() -> None:
    found = debian.read_apt_settings()

    assert found.mirror == "http://mirror.example/debian"
    assert found.security_mirror == "http://mirror.example/security"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("", "http://near.example/debian-security"),
        ("http://other.example/updates/", "http://other.example/updates"),
        ("none", ""),
    ],
)
@pytest.mark.usefixtures("apt")
def test_a_mirror_in_the_environment_goes_first_and_does_not_drop_the_security_updates(
    name: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(debian.MIRROR_VARIABLE, "http://near.example/debian/")
    monkeypatch.setenv(debian.SECURITY_VARIABLE, name)

    found = debian.read_apt_settings()

    assert found.mirror == "http://near.example/debian"
    assert found.security_mirror == expected


@pytest.mark.usefixtures("apt")
def test_a_machine_that_is_no_debian_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: {"ID": "ubuntu", "VERSION_CODENAME": "noble"})

    with pytest.raises(LocalError) as error:
        debian.read_apt_settings()

    assert debian.MIRROR_VARIABLE in error.value.hint


def test_proxies_and_certificates_are_carried_into_the_build_only(apt: dict[str, str], tmp_path: Path) -> None:
    certificate = tmp_path / "host-ca.crt"
    certificate.write_text("PEM")
    apt["apt-config"] = (
        f'Acquire::http::Proxy "http://proxy.example:3128";\nAcquire::https::CaInfo "{certificate}";\n'
        'Acquire::Retries "3";\n'
    )

    found = debian.read_apt_settings()
    volumes = debian.write_build_settings(found, tmp_path / "settings")

    assert found.proxies == (("http", "http://proxy.example:3128"),)
    assert volumes == [f"{tmp_path}/settings:{debian.BUILD_SETTINGS}:ro"]
    text = (tmp_path / "settings/apt.conf").read_text()
    assert 'APT::Update::Error-Mode "any";' in text, "no image without security updates, because they did not answer"
    assert 'Acquire::http::Proxy "http://proxy.example:3128";' in text
    assert f'Acquire::https::CaInfo "{debian.BUILD_SETTINGS}/ca.crt";' in text
    assert "proxy.example" not in debian.sources_list("forky", found)


UPDATES = "http://near.example/debian-security"


@pytest.mark.parametrize(
    ("suite", "mirror", "expected"),
    [("trixie", UPDATES, [f"deb {UPDATES} trixie-security main"]), ("trixie", "", []), ("forky", UPDATES, [])],
)
def test_security_updates_are_in_the_sources_of_every_image_whose_suite_has_them(
    suite: str, mirror: str, expected: list[str]
) -> None:
    apt = debian.AptSettings(mirror="http://m.example/debian", security_mirror=mirror)

    assert debian.sources_list(suite, apt).splitlines() == [f"deb http://m.example/debian {suite} main", *expected]


SIMULATION = """NOTE: This is only a simulation!
Inst passwd [1:4.13+dfsg1-1+deb12u1] (1:4.13+dfsg1-1+deb12u2 Debian:12.15/oldstable [amd64])
Inst containerd.io [1.6] (1.7 Docker:stable [amd64])
Remv docker-ce [24.0]
Inst libsubid4 (1:4.13+dfsg1-1+deb12u2 Debian:12.15/oldstable [amd64])
Inst runc (1.1.5+ds1-1+deb12u1 Debian:12.15/oldstable, Debian-Security:12/oldstable-security [amd64]) []
Conf runc (1.1.5+ds1-1+deb12u1 Debian:12.15/oldstable [amd64])
"""

POLICY = """etcd-server:
  Installed: (none)
  Candidate: 3.4.23-4+b4
  Version table:
     3.4.23-4+b4 500
runc:
  Installed: (none)
  Candidate: (none)
  Version table:
wget:
  Installed: 1.21.3-1
  Candidate: 1.21.3-1
"""


def test_only_what_the_host_lacks_is_fetched_never_an_upgrade_of_its_own() -> None:
    assert tools.planned_downloads(SIMULATION) == [
        ("libsubid4", "1:4.13+dfsg1-1+deb12u2"),
        ("runc", "1.1.5+ds1-1+deb12u1"),
    ]


def test_a_package_without_a_candidate_does_not_count_as_known() -> None:
    assert tools.parse_candidates(POLICY) == {"etcd-server", "wget"}


def test_programs_of_the_tree_go_before_those_of_the_host(tmp_path: Path) -> None:
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/lib/x86_64-linux-gnu").mkdir(parents=True)
    program = tmp_path / "usr/bin/etcd"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    found = tools.Tools(tmp_path)
    assert found.path("etcd") == str(program)
    assert found.env({"PATH": "/bin"})["LD_LIBRARY_PATH"] == str(tmp_path / "usr/lib/x86_64-linux-gnu")
    assert found.env({"PATH": "/bin"})["PATH"].startswith(str(tmp_path / "usr/bin"))
