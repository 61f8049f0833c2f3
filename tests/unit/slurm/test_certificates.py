"""What survives a change of release: certificates from a seed, and which release follows which."""

from __future__ import annotations

import base64
import hashlib

import pytest

from slurm.certificates import SEED_BYTES, authority_certificate, server_certificate
from slurm.names import obstacle

SEED = base64.b64encode(bytes(range(SEED_BYTES))).decode()
NAMES = ["rest", "rest.slurm.svc", "10.0.0.1"]


def test_the_same_seed_and_names_give_the_same_bytes_for_ever() -> None:
    made = server_certificate(SEED, "slurm", NAMES)
    assert made == server_certificate(SEED, "slurm", NAMES)
    assert made.authority == authority_certificate(SEED, "slurm")
    text = made.private_key + made.certificate + made.authority
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "1506ddba19494f25"


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
