"""The certificate of the REST API: the same bytes for ever. tests/slurm/test_rest.py has clients that accept it."""

from __future__ import annotations

import base64
import hashlib

from slurm.certificates import SEED_BYTES, authority_certificate, certificate_names, server_certificate

SEED = base64.b64encode(bytes(range(SEED_BYTES))).decode()
OTHER = base64.b64encode(bytes(SEED_BYTES)).decode()
NAMES = ["rest", "rest.slurm.svc", "10.0.0.1"]


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


def test_the_names_of_the_certificate_are_those_inside_the_cluster_and_the_users_own() -> None:
    assert certificate_names("hpc", "cluster.local", ("api.example.com", "rest")) == [
        "rest", "rest.hpc", "rest.hpc.svc", "rest.hpc.svc.cluster.local", "api.example.com",
    ]  # fmt: skip
