"""The sidecar that runs SSSD: its configuration from a Secret, with the modes that sssd insists on."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.common.sssd import prepare


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A mounted Secret, with the hidden entries that kubelet makes."""
    directory = tmp_path / "secret"
    (directory / "..data").mkdir(parents=True)
    (directory / "sssd.conf").write_text("[sssd]\n")
    (directory / "ca.crt").write_text("certificate\n")
    return directory


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_the_configuration_and_its_files_are_for_root_only(secret: Path, tmp_path: Path) -> None:
    root, said = tmp_path / "root", list[str]()

    prepare(secret, root, said.append)

    assert (root / "etc/sssd/sssd.conf").read_text() == "[sssd]\n"
    assert mode(root / "etc/sssd/sssd.conf") == 0o600
    assert (root / "etc/sssd/secrets/ca.crt").read_text() == "certificate\n"
    assert mode(root / "etc/sssd/secrets") == 0o700
    assert said == ["configuration from the keys ca.crt, sssd.conf of the Secret"]


def test_sockets_are_for_everybody_and_those_of_sssd_itself_are_not(secret: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "var/lib/sss/pipes").mkdir(parents=True)
    (root / "var/lib/sss/pipes/nss").touch()

    prepare(secret, root, lambda _: None)

    assert not (root / "var/lib/sss/pipes/nss").exists(), "of the container before: nobody answers there"
    assert mode(root / "var/lib/sss/pipes") == 0o755
    assert mode(root / "var/lib/sss/pipes/private") == 0o750
