"""The certificate of the REST API: the same bytes for ever, and one that clients accept."""

from __future__ import annotations

import base64
import hashlib
import socket
import ssl
import threading
from pathlib import Path

import pytest

from slurm.certificates import CERTIFICATE_SEED_BYTES, authority_certificate, certificate_names, server_certificate

SEED = base64.b64encode(bytes(range(CERTIFICATE_SEED_BYTES))).decode()
OTHER = base64.b64encode(bytes(CERTIFICATE_SEED_BYTES)).decode()
NAMES = ["rest", "rest.slurm.svc", "10.0.0.1"]


def handshake(tmp_path: Path, name: str, *, trusting: str) -> str:
    """Name of the TLS version, where a client that trusts this authority accepts the server as `name`."""
    made = server_certificate(SEED, "slurm", NAMES)
    (tmp_path / "crt").write_text(made.certificate)
    (tmp_path / "key").write_text(made.private_key)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    client = ssl.create_default_context(cadata=trusting)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    ours, theirs = socket.socketpair()

    def serve() -> None:
        try:
            server.wrap_socket(theirs, server_side=True).close()
        except OSError:
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(ours, server_hostname=name) as connection:
            return connection.version() or ""
    finally:
        ours.close()
        thread.join()


@pytest.mark.parametrize("name", NAMES)
def test_a_client_that_knows_the_authority_accepts_each_name(tmp_path: Path, name: str) -> None:
    assert handshake(tmp_path, name, trusting=authority_certificate(SEED, "slurm")) == "TLSv1.3"


def test_another_name_and_another_authority_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(tmp_path, "elsewhere", trusting=authority_certificate(SEED, "slurm"))
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tmp_path, "rest", trusting=authority_certificate(OTHER, "slurm"))


def test_the_same_seed_and_names_give_the_same_bytes_for_ever() -> None:
    made = server_certificate(SEED, "slurm", NAMES)
    assert made == server_certificate(SEED, "slurm", NAMES)
    assert made.authority == authority_certificate(SEED, "slurm")
    text = made.private_key + made.certificate + made.authority
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "1506ddba19494f25"


def test_other_names_keep_the_authority_and_the_key() -> None:
    made, other = server_certificate(SEED, "slurm", NAMES), server_certificate(SEED, "slurm", ["rest"])
    assert (made.authority, made.private_key) == (other.authority, other.private_key)
    assert made.certificate != other.certificate


def test_another_seed_is_another_authority() -> None:
    assert authority_certificate(SEED, "slurm") != authority_certificate(OTHER, "slurm")


def test_a_long_name_of_a_cluster_fits() -> None:
    assert "CERTIFICATE" in server_certificate(SEED, "a" * 63, ["rest"]).certificate


def test_a_seed_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="16 bytes instead of 32"):
        authority_certificate(base64.b64encode(bytes(16)).decode(), "slurm")


def test_the_names_of_the_certificate_are_those_inside_the_cluster_and_the_users_own() -> None:
    assert certificate_names("hpc", "cluster.local", ("api.example.com", "rest")) == [
        "rest", "rest.hpc", "rest.hpc.svc", "rest.hpc.svc.cluster.local", "api.example.com",
    ]  # fmt: skip
