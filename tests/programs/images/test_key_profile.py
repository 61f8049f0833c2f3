"""The key that a first login makes, with the real ssh-keygen."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from images.jail.image import KEY_PROFILE
from images.jail.known_host import KEY


@pytest.mark.parametrize("links", [True, False])
def test_a_first_login_makes_one_key_that_is_authorized_where_there_are_hard_links_and_where_not(
    tmp_path: Path, links: bool
) -> None:
    here = tmp_path / "worker_host_key.pub"
    here.touch()
    profile = KEY_PROFILE.replace(str(KEY), str(here)).replace('"$(id -u)" -ge', "1000 -ge")
    if not links:
        (tmp_path / "ln").write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / "ln").chmod(0o755)
    env = {**os.environ, "HOME": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    logins = [subprocess.Popen(["sh", "-c", profile], env=env) for _ in range(2)]
    assert [one.wait() for one in logins] == [0, 0]
    keys = tmp_path / ".ssh"
    assert {path.name for path in keys.iterdir()} == {"authorized_keys", "id_ed25519", "id_ed25519.pub"}
    public = subprocess.check_output(["ssh-keygen", "-y", "-f", keys / "id_ed25519"], text=True)
    assert public == (keys / "id_ed25519.pub").read_text()
    assert public in (keys / "authorized_keys").read_text()
