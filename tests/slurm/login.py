"""Users in the jail, and logging in over the real sshd: keys, pods and the command line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
)

from tests.slurm.pod import LIBEXEC, Pod, wait_until
from tests.slurm.sandbox import SlurmSandbox

OPTIONS = "-i /root/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o BatchMode=yes -o LogLevel=ERROR"

BIND = """
import sys
sys.path.insert(0, "/usr/lib/slurmstack")
from pathlib import Path
from images.common.jail_view import LOGIN_BINDS, bind_into_jail
bind_into_jail(Path("/jail"), LOGIN_BINDS, print)
"""
"""What a login does with the jail before it is entered, as a program."""


def private_key() -> bytes:
    """A new one, as OpenSSH reads it."""
    return Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())


def public_line(private: bytes) -> str:
    """What a user puts into authorized_keys."""
    key = load_ssh_private_key(private, None)
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def start_client(cluster: SlurmSandbox) -> str:
    """The pod `client`, from which users log in, with a key; its public line."""
    client = cluster.add_pod("client", "jail", {cluster.jail: "/jail"}, munged=False)
    key = client.root / "root/key"
    key.write_bytes(private_key())
    key.chmod(0o600)
    return public_line(key.read_bytes())


def make_users(pod: Pod, document: Mapping[str, Any]) -> None:
    """Run the image's program that makes users in the jail."""
    (pod.root / "config/slurm/users.json").write_text(json.dumps(document))
    done = pod.run([f"{LIBEXEC}/users", "/config/slurm/users.json"])
    assert done.returncode == 0, done.stdout + done.stderr


def declare(cluster: SlurmSandbox, uids: Mapping[str, int], *, sudo: str = "") -> None:
    """These users are those in the jail; they log in with the key of `client`. `sudo`: who may use it."""
    client = cluster.pods["client"]
    keys = [public_line((client.root / "root/key").read_bytes())]
    users = {
        name: {"uid": uid, "gid": uid, "ssh_authorized_keys": keys, "sudo": name == sudo} for name, uid in uids.items()
    }
    make_users(client, {"users": users})


def start_login(cluster: SlurmSandbox, *, before: Callable[[Pod], None] = lambda _: None, **env: str) -> Pod:
    """A login node with sackd and sshd; returns when alice can log in."""
    secret = cluster.work / "host-keys"
    secret.mkdir()
    (secret / "ssh_host_ed25519_key").write_bytes(private_key())
    login = cluster.add_pod("login-0", "login", {cluster.jail: "/jail", secret: "/secrets/ssh"})
    before(login)
    login.start_program("sackd", {"CONTROLLER": "controller-0:6817"})
    login.start_program("sshd", {"JAIL": "/jail", **env})
    wait_until(lambda: ssh_to(cluster, "alice", "true")[0] == 0, cluster.logs)
    return login


def ssh_to(
    cluster: SlurmSandbox,
    user: str,
    command: str,
    program: str = "ssh",
    key: str = "/root/key",
    *,
    host: str = "login-0",
) -> tuple[int, str]:
    """(exit code, output) of a command over ssh, from the pod `client`, which has the key."""
    options = OPTIONS.replace("/root/key", key)
    done = cluster.run(["bash", "-c", f"{program} {options} {user}@{host} {command}"], pod="client")
    return done.returncode, done.stdout + done.stderr
