"""Slurm refuses a key of tokens that others can read; a Secret volume cannot give it another owner."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from images.common.jwt_key import KEY, install_jwt_key
from slurm.rest import JWT_KEY


def test_only_the_daemon_can_read_the_key(tmp_path: Path) -> None:
    secret, target = tmp_path / "secret", tmp_path / "run/keys/jwt_hs256.key"
    secret.write_bytes(b"\x00binary\n")

    install_jwt_key(os.getuid(), os.getgid(), print, secret=secret, target=target)

    assert target.read_bytes() == b"\x00binary\n"
    assert stat.S_IMODE(target.stat().st_mode) == 0o400


def test_a_rotated_key_replaces_the_one_before(tmp_path: Path) -> None:
    secret, target = tmp_path / "secret", tmp_path / "key"
    for key in (b"old", b"new"):
        secret.write_bytes(key)
        install_jwt_key(os.getuid(), os.getgid(), print, secret=secret, target=target)

    assert target.read_bytes() == b"new"


def test_slurm_conf_names_the_file_that_is_written() -> None:
    assert str(KEY) == JWT_KEY
