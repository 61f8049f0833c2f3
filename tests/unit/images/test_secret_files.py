"""Slurm and sshd refuse a key that others can read; a Secret volume cannot give it another owner."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from images.common.files import JWT_KEY, install_secret
from slurm import names


def test_only_the_daemon_can_read_a_key_and_a_rotated_one_replaces_it(tmp_path: Path) -> None:
    secret, target = tmp_path / "secret", tmp_path / "run/keys/jwt_hs256.key"
    for key in (b"\x00binary\n", b"new"):
        secret.write_bytes(key)
        install_secret("the key", secret, target, print, owner=(os.getuid(), os.getgid()))

        assert target.read_bytes() == key
    assert stat.S_IMODE(target.stat().st_mode) == 0o400
    assert stat.S_IMODE(target.parent.stat().st_mode) == 0o755


def test_slurm_conf_names_the_file_that_is_written() -> None:
    assert str(JWT_KEY) == names.JWT_KEY


def test_a_directory_that_everybody_may_write_is_closed_before_the_file_is_there(tmp_path: Path) -> None:
    secret, target = tmp_path / "secret", tmp_path / "keys/key"
    secret.write_text("k")
    target.parent.mkdir()
    for mode, closed in ((0o777, 0o755), (0o700, 0o700), (0o1777, 0o1755)):
        target.parent.chmod(mode)
        install_secret("the key", secret, target, lambda _: None)
        assert stat.S_IMODE(target.parent.stat().st_mode) == closed
