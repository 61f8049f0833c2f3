"""A backup with a store that makes trouble, keys that change, and users who have left what they like in the jail."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.s3_store import KEYS, Store, s3_store
from tests.slurm.accounting import BareSandbox
from tests.slurm.backups import BackupPod, make_jail, refused
from tests.slurm.cluster import ClusterFactory
from tests.slurm.conftest import one_version


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with s3_store() as running:
        yield running


@pytest.fixture
def alone(own_cluster: ClusterFactory, store: Store, slurm_version: str, tmp_path: Path) -> Iterator[BackupPod]:
    """The pod of a backup, with a jail and a state, and nothing of Slurm that runs."""
    make_jail(tmp_path / "jail")
    os.truncate(tmp_path / "jail/home/alice/holes", 1)
    sandbox = own_cluster(slurm_version, kind=BareSandbox, workers=0)
    yield BackupPod(sandbox, store, tmp_path / "jail", prefix=tmp_path.name)
    store.before = lambda _: None
    store.know_keys(True)


@one_version
def test_each_trouble_with_the_store_has_its_message_and_leaves_the_backup_before(
    alone: BackupPod, store: Store, slurm_version: str
) -> None:
    alone.keys["secret-access-key"] += "\n"  # as an editor leaves it in the Secret
    assert "repository does not exist" in refused(lambda: alone.save(database=False, KIND="scheduled"))
    saved = alone.save(database=False)
    assert "Without the Secret's password nobody can read it" in alone.pod.log("backup")

    def again() -> object:
        return alone.save(database=False)

    alone.keys["password"] = "another"
    assert "wrong password or no key found" in refused(again)
    alone.keys["password"] = KEYS["password"]
    store.know_keys(False)
    assert "Access Denied" in refused(again)
    store.know_keys(True)
    port, alone.port = alone.port, 9
    assert "connection refused" in refused(again)
    alone.port = port
    assert not [value for value in KEYS.values() if value in alone.pod.log("backup")], "no log has a secret"
    assert [(found["id"], found["complete"]) for found in alone.list()] == [(saved, True)]
    alone.verify()


@one_version
def test_after_a_rotation_the_schedule_goes_on_and_a_cluster_with_other_keys_is_refused(
    alone: BackupPod, store: Store, slurm_version: str
) -> None:
    def last() -> object:
        return alone.list(WHAT="jail")

    munge, jwt = alone.sandbox.work / "secrets/munge.key", alone.sandbox.jwt_secret / "jwt_hs256.key"
    alone.save(database=False)
    munge.write_bytes(os.urandom(128))
    rotated = alone.save(database=False, KIND="scheduled")
    assert rotated in str(last())
    jwt.write_bytes(os.urandom(32))
    both = alone.save(database=False, KIND="scheduled")
    munge.write_bytes(os.urandom(128))
    jwt.write_bytes(os.urandom(32))
    assert f"{both}, is of another cluster" in refused(lambda: alone.save(database=False, KIND="scheduled"))
    anew = alone.save(database=False)
    assert anew in str(last())


@one_version
def test_retention_takes_the_oldest_ones_whole_and_leaves_what_a_restore_has_saved(
    alone: BackupPod, slurm_version: str
) -> None:
    oldest = alone.save(database=False)
    kept = [alone.save(database=False, KIND=kind) for kind in ("before-restore", "manual", "scheduled")]
    assert [found["id"] for found in alone.list()] == [oldest, *kept]
    kept.append(alone.save(database=False, KEEP="last=3 daily=1"))
    assert [(found["id"], found["complete"]) for found in alone.list()] == [(each, True) for each in kept]
    alone.verify()
    assert alone.content("keys", "/secrets/stack-file/Pulumi.saved.yaml") == "config: {}\n"
    assert alone.content("jail", "/jail/etc/motd") == "hello"


@one_version
def test_a_truncated_or_altered_object_is_found(
    alone: BackupPod, store: Store, slurm_version: str, tmp_path: Path
) -> None:
    alone.save(database=False)
    packs = store.objects(f"{tmp_path.name}/data/")
    largest = max(packs, key=lambda name: len(packs[name]))
    whole = packs[largest]
    for damaged in (whole[: len(whole) // 2], bytes([whole[0] ^ 1]) + whole[1:]):
        store.put(largest, damaged)
        said = refused(alone.verify)
        assert "is damaged" in said
        assert largest.rpartition("/")[2][:8] in said
    store.put(largest, whole)
    alone.verify()


@one_version
def test_a_backup_that_is_killed_leaves_the_one_before_and_the_next_one_is_whole(
    alone: BackupPod, store: Store, slurm_version: str, tmp_path: Path
) -> None:
    """The store is slow, too. Nobody has taken the lock of the killed one away."""
    saved = alone.save(database=False)

    def kill(request: dict[str, Any]) -> None:
        time.sleep(0.05)
        is_jail = "keys is saved" in alone.pod.log("backup")[begun:]
        if is_jail and request["REQUEST_METHOD"] == "PUT" and "/data/" in request["PATH_INFO"]:
            alone.pod.run("pkill -KILL -f '[l]ibexec/slurmstack/backup'; pkill -KILL -x restic")

    (tmp_path / "jail/home/alice/new").write_bytes(os.urandom(2**20))
    begun, store.before = len(alone.pod.log("backup")), kill
    refused(lambda: alone.save(database=False))
    store.before = lambda _: time.sleep(0.05)
    found = alone.list()
    assert [(item["id"], item["complete"]) for item in found] == [(saved, True), (found[-1]["id"], False)]
    again = alone.save(database=False)
    assert alone.list(WHAT="jail")[0]["id"] == again
    alone.verify()


@one_version
def test_a_restore_writes_nothing_outside_of_the_jail_whatever_users_have_left_there(
    alone: BackupPod, slurm_version: str, tmp_path: Path
) -> None:
    alone.save(database=False)
    home, outside = tmp_path / "jail/home", alone.sandbox.work / "backup-run"
    (outside / "data").write_text("not the jail's")
    subprocess.run(["rm", "-r", str(home / "alice")], check=True)
    (home / "alice").symlink_to("/run/slurmstack")
    (tmp_path / "jail/etc/motd").unlink()
    (tmp_path / "jail/etc/motd").symlink_to("/run/slurmstack/data")
    alone.restore("jail")
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"data": "not the jail's"}
    assert not (home / "alice").is_symlink()
    assert (tmp_path / "jail/etc/motd").read_text() == "hello"


@one_version
def test_homes_are_put_back_to_where_they_lie_now(alone: BackupPod, slurm_version: str, tmp_path: Path) -> None:
    del slurm_version
    in_jail, apart = tmp_path / "jail/home", {"HOMES": "/shared/home"}
    data = (in_jail / "alice/data").read_bytes()
    alone.save(database=False)
    shutil.rmtree(in_jail / "alice")
    (alone.homes / "bob").mkdir()

    alone.restore("jail", **apart)

    assert {path.name for path in alone.homes.iterdir()} == {"alice", "bob"}, "what has come since stays"
    assert (alone.homes / "alice/data").read_bytes() == data
    assert (alone.homes / "alice/data").stat().st_uid == 10001
    assert list(in_jail.iterdir()) == []

    alone.save(database=False, **apart)
    shutil.rmtree(alone.homes / "alice")

    alone.restore("jail")

    assert (in_jail / "alice/data").read_bytes() == data
    assert [path.name for path in alone.homes.iterdir()] == ["bob"]


@one_version
def test_nothing_that_a_user_can_leave_keeps_the_jail_from_being_saved_or_restored(
    alone: BackupPod, slurm_version: str, tmp_path: Path
) -> None:
    """A deep tree; attributes that fill their block; a directory or a FIFO in the place of a file.

    What has come since stays, as does what is excluded now.
    """
    home = tmp_path / "jail/home/mallory"
    for name in ("deep", "full"):
        (home / name).mkdir(parents=True)
    make_deep(home / "deep", 1200)
    for name in ("full/file", "taken", "pipe", "scratch"):
        (home / name).write_text("saved")
    (home / "second").hardlink_to(home / "taken")
    os.setxattr(home / "full/file", "user.a", b"a" * 3500)
    alone.save(database=False)
    os.removexattr(home / "full/file", "user.a")
    os.setxattr(home / "full/file", "user.b", b"b" * 3500)
    (home / "scratch").write_text("of today")
    for name in ("taken", "pipe"):
        (home / name).unlink()
    (home / "taken/below").mkdir(parents=True)
    os.mkfifo(home / "pipe")
    (tmp_path / "jail/etc/motd").write_text("changed")
    os.utime(tmp_path / "jail/etc/motd", (1, 1))
    (tmp_path / "jail/.slurmstack-roots/new/root").mkdir(parents=True)
    try:
        said = alone.restore("jail", EXCLUDE='["/home/mallory/scratch"]')
        assert "the jail has" in said
        assert "not put back (2 in all): '/home/mallory/taken'" in said, "what cannot be put back is named"
        assert (home / "taken/below").is_dir()
        assert (home / "pipe").read_text() == "saved"
        assert (home / "second").read_text() == "saved", "the other name of that file"
        assert (home / "scratch").read_text() == "of today"
        assert (tmp_path / "jail/etc/motd").read_text() == "hello"
        assert (tmp_path / "jail/.slurmstack-roots/new/root").is_dir(), "the stack file may name it"
        assert (home / "full/file").read_text() == "saved"
    finally:
        subprocess.run(["rm", "-rf", str(home)], check=True)


def make_deep(directory: Path, levels: int) -> None:
    at = os.open(directory, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)
