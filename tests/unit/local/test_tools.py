from __future__ import annotations

from pathlib import Path

from local import tools

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
