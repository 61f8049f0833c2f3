"""Certificates of the cluster: one authority, one identity per component, as Kubernetes' own RBAC roles expect them.

ECDSA P-256 everywhere: a key takes a millisecond, RSA keys for the same files took seconds.
"""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from local import files, paths
from local.addresses import Addresses

CONTEXT = "slurmstack-local"
_YEARS = 10


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Who a certificate says its owner is: the user name and the group that RBAC sees, names for a server."""

    file: str
    user: str
    group: str = ""
    names: tuple[str, ...] = ()
    server: bool = False
    kubeconfig: bool = False


def identities(addresses: Addresses, nodes: int) -> list[Identity]:
    """List all certificates but the authority's own."""
    api_names = (
        addresses.control_plane,
        addresses.api_service,
        "127.0.0.1",
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    )
    found = [
        Identity(file="apiserver", user="kube-apiserver", names=api_names, server=True),
        Identity(file="apiserver-kubelet-client", user="kube-apiserver-kubelet-client", group="system:masters"),
        Identity(file="admin", user="slurmstack-admin", group="system:masters", kubeconfig=True),
        Identity(file="controller-manager", user="system:kube-controller-manager", kubeconfig=True),
        Identity(file="scheduler", user="system:kube-scheduler", kubeconfig=True),
        Identity(file="kube-proxy", user="system:kube-proxy", kubeconfig=True),
    ]
    for index in range(nodes):
        name = f"node-{index}"
        found += [
            Identity(file=f"kubelet-{name}", user=f"system:node:{name}", group="system:nodes", kubeconfig=True),
            Identity(file=f"kubelet-{name}-server", user=name, names=(name, addresses.node(index)), server=True),
        ]
    return found


def ensure(addresses: Addresses, nodes: int) -> None:
    """Make all certificates once; the directory appears complete or not at all."""
    if paths.pki().is_dir():
        return
    with files.whole_directory(paths.pki()) as work:
        authority_key = ec.generate_private_key(ec.SECP256R1())
        authority = _authority(authority_key)
        _write_pair(work / "ca", authority, authority_key)
        files.write_whole(work / "service-accounts.key", _key_pem(ec.generate_private_key(ec.SECP256R1())))
        for identity in identities(addresses, nodes):
            key = ec.generate_private_key(ec.SECP256R1())
            _write_pair(work / identity.file, _certificate(identity, key, authority, authority_key), key)
            if identity.kubeconfig:
                config = kubeconfig(addresses.api_url, work / identity.file, work / "ca.crt")
                files.write_whole(work / f"{identity.file}.kubeconfig", config)


def publish_admin_kubeconfig() -> None:
    """Put the administrator's kubeconfig where people look for it."""
    target, content = paths.kubeconfig(), (paths.pki() / "admin.kubeconfig").read_text()
    if not target.exists() or target.read_text() != content:
        files.write_whole(target, content)


def kubeconfig(server: str, pair: Path, authority: Path) -> str:
    """Write a kubeconfig that needs no other file."""

    def data(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    cluster = {"server": server, "certificate-authority-data": data(authority)}
    user = {
        "client-certificate-data": data(pair.with_name(pair.name + ".crt")),
        "client-key-data": data(pair.with_name(pair.name + ".key")),
    }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CONTEXT, "cluster": cluster}],
        "users": [{"name": CONTEXT, "user": user}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": CONTEXT}}],
        "current-context": CONTEXT,
    }
    return yaml.safe_dump(document, sort_keys=False)


def _authority(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "slurmstack-local-ca")])
    signs = {"digital_signature", "key_cert_sign", "crl_sign"}
    uses = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only",
            "decipher_only", *signs)  # fmt: skip
    builder = _builder(name, name, key).add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    builder = builder.add_extension(x509.KeyUsage(**{use: use in signs for use in uses}), critical=True)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return builder.add_extension(identifier, critical=False).sign(key, hashes.SHA256())


def _certificate(
    identity: Identity,
    key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, identity.user)]
    if identity.group:
        attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, identity.group))
    use = ExtendedKeyUsageOID.SERVER_AUTH if identity.server else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = (
        _builder(x509.Name(attributes), authority.subject, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
    )
    if identity.names:
        names = x509.SubjectAlternativeName([_alternative(name) for name in identity.names])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(authority_key, hashes.SHA256())


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    # An hour back, for machines whose clock was set a little back after the start.
    start = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + dt.timedelta(days=365 * _YEARS))
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    # Not PKCS#8: the API server takes the public half from the same file, and knows how only for this form.
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


def _write_pair(path: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    files.write_whole(path.with_name(path.name + ".crt"), certificate.public_bytes(serialization.Encoding.PEM).decode())
    files.write_whole(path.with_name(path.name + ".key"), _key_pem(key))
