"""The bill of materials of an image says what its file system has."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from local import sbom

STATUS = """\
Package: libssl3
Status: install ok installed
Source: openssl (3.5.1-1)
Architecture: amd64
Version: 1:3.5.1-1+deb13u1
Description: a library
 with: something that looks like a field

Package: nano
Status: deinstall ok config-files
Architecture: amd64
Version: 8.4-1
"""


@pytest.fixture
def bill(tmp_path: Path) -> dict[str, dict[str, object]]:
    """Components of an image by name."""
    for path, text in {"var/lib/dpkg/status": STATUS, "usr/lib/slurmstack/jail.so": "code"}.items():
        (tmp_path / "image" / path).parent.mkdir(parents=True)
        (tmp_path / "image" / path).write_text(text)
    target = tmp_path / "bill.json"
    sbom.write(tmp_path / "image", target, name="localhost/slurmstack/worker:24.11-abc", suite="trixie")
    document = json.loads(target.read_text())
    assert document["metadata"]["component"]["version"] == "24.11-abc"
    return {component["name"]: component for component in document["components"]}


def test_a_package_is_named_as_scanners_look_it_up(bill: dict[str, dict[str, object]]) -> None:
    assert bill["libssl3"]["purl"] == "pkg:deb/debian/libssl3@1%3A3.5.1-1%2Bdeb13u1?arch=amd64&distro=trixie"
    assert bill["libssl3"]["properties"] == [{"name": "debian:source", "value": "openssl"}]


def test_a_package_that_was_removed_is_not_in_it(bill: dict[str, dict[str, object]]) -> None:
    assert set(bill) == {"debian", "libssl3", "/usr/lib/slurmstack/jail.so"}


def test_our_programs_are_in_it_by_their_content(bill: dict[str, dict[str, object]]) -> None:
    digest = hashlib.sha256(b"code").hexdigest()
    assert bill["/usr/lib/slurmstack/jail.so"]["hashes"] == [{"alg": "SHA-256", "content": digest}]
