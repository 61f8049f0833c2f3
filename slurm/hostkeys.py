"""SSH host keys that survive everything but an explicit rotation: derived from a random seed in the state."""

from __future__ import annotations

import base64

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

SEED_BYTES = 32


def ed25519_private_key_pem(seed_base64: str) -> str:
    """The private host key as PKCS#8 PEM, which OpenSSH 9.6 and later read.

    PKCS#8 rather than OpenSSH's own format: the latter contains a random number, so that the same key would be written
    differently by each run and show up as a change.
    """
    key = _key(seed_base64)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def ed25519_public_key(seed_base64: str) -> str:
    """The public host key as in a `known_hosts` line, without host: `ssh-ed25519 AAAA...`."""
    return _key(seed_base64).public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def _key(seed_base64: str) -> Ed25519PrivateKey:
    seed = base64.b64decode(seed_base64, validate=True)
    if len(seed) != SEED_BYTES:
        raise ValueError(f"the seed of the host key has {len(seed)} bytes instead of {SEED_BYTES}")
    derived = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=b"slurmstack ssh host key ed25519").derive(
        seed
    )
    return Ed25519PrivateKey.from_private_bytes(derived)
