"""Keys that survive everything but an explicit rotation, each derived from a random seed: TLS and SSH host keys.

The same seed and names always give the same bytes, so that nothing shows up as a change: keys come from the seed,
signatures are deterministic (RFC 6979), dates are fixed, and serial numbers follow from the content.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from slurm.names import REST

SEED_BYTES = 32

VALID_FROM = datetime(2025, 1, 1, tzinfo=UTC)
VALID_UNTIL = datetime(2045, 1, 1, tzinfo=UTC)
"""Fixed: a date of today would be another certificate at each run. Who wants shorter ones takes cert-manager."""

_ORDER_P256 = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Order of the curve's group (FIPS 186-4, D.1.2.3): private keys are 1 to this, less one."""


@dataclass(frozen=True, kw_only=True)
class ServerCertificate:
    """What a TLS server needs, and what its clients check it with."""

    private_key: str
    """PKCS#8 PEM."""
    certificate: str
    """PEM."""
    authority: str
    """Certificate of the authority as PEM; public."""


def certificate_names(namespace: str, cluster_domain: str, more: tuple[str, ...] = ()) -> list[str]:
    """Host names of the REST API: those inside the cluster, then those of the stack file, each once."""
    inside = [REST, f"{REST}.{namespace}", f"{REST}.{namespace}.svc", f"{REST}.{namespace}.svc.{cluster_domain}"]
    return list(dict.fromkeys([*inside, *more]))


def authority_certificate(seed_base64: str, cluster: str) -> str:
    """The certificate of the authority of a cluster as PEM: what clients verify the server with."""
    return _pem(_authority(seed_base64, cluster))


def server_certificate(seed_base64: str, cluster: str, names: Sequence[str]) -> ServerCertificate:
    """A certificate of the authority for these host names or IP addresses. Other names, same keys."""
    authority, signer, key = (
        _authority(seed_base64, cluster),
        _key(seed_base64, b"authority"),
        _key(seed_base64, b"server"),
    )
    alternatives = [
        x509.IPAddress(ipaddress.ip_address(name)) if is_address(name) else x509.DNSName(name) for name in names
    ]
    builder = (
        _builder(f"slurmstack REST API of {cluster}", authority.subject, key, "\0".join(["server", *names]))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    certificate = builder.sign(signer, hashes.SHA256(), ecdsa_deterministic=True)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return ServerCertificate(private_key=private, certificate=_pem(certificate), authority=_pem(authority))


def is_address(name: str) -> bool:
    """Whether it is an IP address and no host name: a certificate has them apart."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def ed25519_private_key_pem(seed_base64: str) -> str:
    """The private host key as PKCS#8 PEM, which OpenSSH 9.6 and later read.

    PKCS#8 rather than OpenSSH's own format: the latter contains a random number, so that the same key would be written
    differently by each run and show up as a change.
    """
    key = _host_key(seed_base64)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def ed25519_public_key(seed_base64: str) -> str:
    """The public host key as in a `known_hosts` line, without host: `ssh-ed25519 AAAA...`."""
    return _host_key(seed_base64).public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def _authority(seed_base64: str, cluster: str) -> x509.Certificate:
    key, name = _key(seed_base64, b"authority"), f"slurmstack {cluster}"
    builder = (
        _builder(name, _subject(name), key, "authority")
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
    )
    return builder.sign(key, hashes.SHA256(), ecdsa_deterministic=True)


def _builder(name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, content: str) -> x509.CertificateBuilder:
    """What both certificates have. Different content has another serial number, as RFC 5280 asks for."""
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    serial = hashlib.sha256(identifier.digest + content.encode()).digest()[:16]
    return (
        x509.CertificateBuilder()
        .subject_name(_subject(name))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(int.from_bytes(serial, "big") >> 1 | 1)
        .not_valid_before(VALID_FROM)
        .not_valid_after(VALID_UNTIL)
        .add_extension(identifier, critical=False)
    )


def _subject(name: str) -> x509.Name:
    """At most the 64 characters that X.520 allows; nobody checks this name, the alternative names count."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _key(seed_base64: str, purpose: bytes) -> ec.EllipticCurvePrivateKey:
    """P-256, which every TLS client knows: 48 derived bytes make its bias negligible (FIPS 186-5, A.2.1)."""
    derived = _derived(seed_base64, b"slurmstack rest certificate p256 " + purpose, length=48)
    return ec.derive_private_key(int.from_bytes(derived, "big") % (_ORDER_P256 - 1) + 1, ec.SECP256R1())


def _host_key(seed_base64: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(_derived(seed_base64, b"slurmstack ssh host key ed25519", length=32))


def _derived(seed_base64: str, purpose: bytes, *, length: int) -> bytes:
    seed = base64.b64decode(seed_base64, validate=True)
    if len(seed) != SEED_BYTES:
        raise ValueError(f"the seed of a key has {len(seed)} bytes instead of {SEED_BYTES}")
    return HKDF(algorithm=hashes.SHA256(), length=length, salt=None, info=purpose).derive(seed)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()
