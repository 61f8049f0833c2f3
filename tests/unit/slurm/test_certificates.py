"""What survives a change of release: certificates from a seed, and which release follows which."""

from __future__ import annotations

import base64
import hashlib
from typing import get_args

import pytest

from config.sections.slurm import Slurm
from slurm.certificates import SEED_BYTES, authority_certificate, certificate_names, server_certificate
from slurm.names import RELEASES, obstacle

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


def test_ours_are_known_and_the_newer_may_follow_the_older() -> None:
    older, newer = get_args(Slurm.model_fields["version"].annotation)
    assert {older, newer} <= set(RELEASES)
    assert obstacle(older, newer) is None


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("24.11", "24.11", "runs already"),
        ("26.05", "24.11", "never read what a newer one"),
        ("24.05", "26.05", "more than 3 releases: go by way of 25.11"),
    ],
)
def test_what_cannot_follow_says_why(old: str, new: str, why: str) -> None:
    assert why in str(obstacle(old, new))
