"""Further packages in the jail, and CUDA without a driver: what is asked for and what is refused."""

from __future__ import annotations

from images.jail import packages

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
