"""Logging in over the real sshd, for tests: keys, and the command line."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
)

from tests.slurm.sandbox import SlurmSandbox

OPTIONS = "-i /root/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o BatchMode=yes -o LogLevel=ERROR"


def private_key() -> bytes:
    """A new one, as OpenSSH reads it."""
    return Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())


def public_line(private: bytes) -> str:
    """What a user puts into authorized_keys."""
    key = load_ssh_private_key(private, None)
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def write_host_key(secret: Path) -> None:
    """The Secret with sshd's host key, as a directory."""
    secret.mkdir()
    (secret / "ssh_host_ed25519_key").write_bytes(private_key())


def write_user_key(path: Path) -> str:
    """A private key; returns the public line."""
    private = private_key()
    path.write_bytes(private)
    path.chmod(0o600)
    return public_line(private)


def ssh_to(cluster: SlurmSandbox, user: str, command: str, program: str = "ssh") -> tuple[int, str]:
    """(exit code, output) of a command over ssh, from the pod `client`, which has the key."""
    done = cluster.run(["bash", "-c", f"{program} {OPTIONS} {user}@login-0 {command}"], pod="client")
    return done.returncode, done.stdout + done.stderr
