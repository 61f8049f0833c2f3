"""Backups of a sandbox: the image's own programs, one after the other, as the containers of the pods run them."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.s3_store import BUCKET, KEYS, Store
from tests.slurm.accounting import password_binds, slurmdbd_binds
from tests.slurm.pod import Pod
from tests.slurm.sandbox import SlurmSandbox

SAVING = (("backup-state", "state"), ("backup-jail", "jail"))
RESTORING = {"state": "restore-state", "database": "restore-state", "jail": "restore-jail"}
VARIABLES = {
    "access-key-id": "AWS_ACCESS_KEY_ID", "secret-access-key": "AWS_SECRET_ACCESS_KEY", "password": "RESTIC_PASSWORD",
}  # fmt: skip


class BackupPod:
    """A pod with all that the containers of backups and restores see, and the way to a store."""

    def __init__(self, sandbox: SlurmSandbox, store: Store, jail: Path, *, prefix: str = "slurm") -> None:
        self.sandbox = sandbox
        self._prefix, self._store = prefix, store
        jail.mkdir(exist_ok=True)
        self.keys = dict(KEYS)
        """The Secret that the stack file names."""
        self.cache = self._directory("cache")
        self.homes = self._directory("homes")
        """A volume of homes, for programs that are told `HOMES=/shared/home`."""
        stack, stage = self._directory("stack"), self._directory("stage")
        (stack / "Pulumi.saved.yaml").write_text("config: {}\n")
        (stage / "volume").mkdir(exist_ok=True)
        binds = {
            self.cache: "/cache",
            self._directory("run"): "/run/slurmstack",
            sandbox.work / "secrets": "/secrets/keys/munge-key",
            sandbox.jwt_secret: "/secrets/keys/jwt-key",
            stack: "/secrets/stack-file",
            stage: "/stage",
            sandbox.state: "/stage/volume",
            jail: "/jail",
            self.homes: "/shared/home",
            **password_binds(sandbox),
            **slurmdbd_binds(sandbox),
        }
        self.pod: Pod = sandbox.add_pod("backup", "database", binds, munged=False)
        self.port = store.listen("0.0.0.0", beside=self.pod.pid)

    def _directory(self, name: str) -> Path:
        path = self.sandbox.work / f"backup-{name}"
        path.mkdir(exist_ok=True)
        return path

    def _told(self, port: int) -> dict[str, str]:
        """What all containers are told."""
        url = f"s3:http://127.0.0.1:{port}/{BUCKET}/{self._prefix}"
        where = {"RESTIC_REPOSITORY": url, "RESTIC_CACHE_DIR": "/cache", "TMPDIR": "/cache", "TZ": "UTC"}
        keys = {VARIABLES[name]: value for name, value in self.keys.items()}
        return {**where, "AWS_DEFAULT_REGION": "us-east-1", "CLUSTER_NAME": "sandbox", **keys}

    def run(self, *steps: tuple[str, str], **env: str) -> str:
        """Run the containers of a pod until one fails; returns what they wrote. Raises AssertionError with that."""
        told = {**self._told(self.port), "LARGEST_FILE": str(2**40), **env}
        begun = len(self.pod.log("backup"))
        for container, step in steps:
            code = self.pod.start_program("backup", told, step, container=container).wait(240)
            assert code == 0, f"{container} ended with {code}: {self.pod.log('backup')[begun:]}"
        return self.pod.log("backup")[begun:]

    def save(self, *, database: bool = True, **env: str) -> str:
        """Make a backup; its id."""
        parts = f"state{' database' if database else ''} jail"
        shutil.rmtree(self.sandbox.work / "backup-stage/state", ignore_errors=True)
        told = {"KIND": "manual", "PARTS": parts, **env}
        self.run(*(SAVING if "jail" in told["PARTS"] else SAVING[:1]), **told)
        return str(json.loads((self.cache / "backup.json").read_text())["backup"])

    def restore(self, what: str = "state database jail", **env: str) -> str:
        """Put parts back; what the programs wrote."""
        steps = dict.fromkeys(RESTORING[part] for part in what.split())
        return self.run(*((step, step) for step in steps), WHAT=what, **env)

    def rehearse(self) -> dict[str, Any]:
        """Rehearse the last backup, in a pod of its own; how it ended."""
        empty = (
            "/cache",
            "/run/munge",
            "/run/munged",
            "/run/slurmstack",
            "/secrets/database",
            "/stage",
            "/var/lib/mysql",
        )
        binds = {self._directory(f"rehearsal{path.replace('/', '-')}"): path for path in (*empty, "/secrets/munge")}
        binds[self.sandbox.config_directory] = "/config/slurm"
        pod = self.sandbox.add_pod("rehearsal", "database", binds, munged=False)
        told = {**self._told(self._store.listen("0.0.0.0", beside=pod.pid)), "MEMORY_LIMIT": str(2**30)}
        code = pod.start_program("backup", told, "rehearse", container="rehearse").wait(240)
        said = pod.log("backup")
        self.sandbox.remove_pod("rehearsal")
        assert code == 0, said
        found: dict[str, Any] = json.loads(said.splitlines()[-1])
        return found

    def content(self, part: str, path: str) -> str:
        """A file of the last backup, as people read it without us."""
        done = self.pod.run(["restic", "dump", "--tag", f"part={part}", "latest", path], env=self._told(self.port))
        assert done.returncode == 0, done.stderr
        return done.stdout

    def verify(self) -> str:
        """Look at the whole repository."""
        return self.run(("backups", "verify"), READ="100%")

    def list(self, **env: str) -> list[dict[str, Any]]:
        """What there is."""
        found: list[dict[str, Any]] = json.loads(self.run(("backups", "list"), **env).splitlines()[-1])
        return found


def make_jail(path: Path) -> dict[str, bytes]:
    """A little jail with all that a file can be; its regular files."""
    home = path / "home/alice"
    home.mkdir(parents=True)
    files = {"home/alice/data": os.urandom(300_000), "home/alice/new\nline": b"1", "etc/motd": b"hello"}
    (path / "etc").mkdir()
    for name, content in files.items():
        (path / name).write_bytes(content)
        os.chown(path / name, 10001, 10001)
    os.setxattr(home / "data", "user.mood", b"fine")
    (home / "data").chmod(0o640)
    (home / "link").symlink_to("/etc/shadow")
    os.mkfifo(home / "fifo")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(home / "socket"))
    with (home / "holes").open("wb") as sparse:
        sparse.truncate(2**33)
    (path / "tmp").mkdir()
    (path / "tmp/scratch").write_text("gone")
    return files


def refused(action: Callable[[], object]) -> str:
    """What the containers said, one of which has failed."""
    with pytest.raises(AssertionError, match="ended with") as caught:
        action()
    return str(caught.value)
