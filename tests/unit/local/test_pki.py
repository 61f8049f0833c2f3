from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from local import addresses, paths, pki

if TYPE_CHECKING:
    from pathlib import Path

RANGES = addresses.from_environment({})


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLURMSTACK_LOCAL_DIR", str(tmp_path))
    pki.ensure(RANGES, 2)
    return paths.pki()


def _certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_a_kubelet_is_known_as_the_node_that_it_is(made: Path) -> None:
    subject = _certificate(made / "kubelet-node-1.crt").subject
    assert subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == "system:node:node-1"
    assert subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)[0].value == "system:nodes"


def test_the_api_server_is_trusted_by_its_address_and_by_its_service(made: Path) -> None:
    certificate = _certificate(made / "apiserver.crt")
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    found = [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    assert RANGES.control_plane in found
    assert RANGES.api_service in found
    assert "kubernetes.default.svc" in names.get_values_for_type(x509.DNSName)


def test_every_certificate_is_signed_by_the_clusters_authority(made: Path) -> None:
    authority = _certificate(made / "ca.crt")
    for path in made.glob("*.crt"):
        _certificate(path).verify_directly_issued_by(authority)


def test_keys_are_for_the_owner_only(made: Path) -> None:
    assert all(path.stat().st_mode & 0o077 == 0 for path in made.iterdir())


def test_a_second_run_changes_no_certificate(made: Path) -> None:
    before = {path.name: path.read_bytes() for path in made.iterdir()}
    pki.ensure(RANGES, 2)
    assert {path.name: path.read_bytes() for path in made.iterdir()} == before


def test_an_interrupted_run_leaves_nothing_that_looks_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURMSTACK_LOCAL_DIR", str(tmp_path))

    def interrupt(*_arguments: object) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(pki, "kubeconfig", interrupt)
        with pytest.raises(KeyboardInterrupt):
            pki.ensure(RANGES, 2)
    assert not paths.pki().exists()
    pki.ensure(RANGES, 2)
    assert (paths.pki() / "admin.kubeconfig").exists()


def test_the_administrators_context_has_the_documented_name(made: Path) -> None:
    pki.publish_admin_kubeconfig()
    document = yaml.safe_load(paths.kubeconfig().read_text())
    assert document["current-context"] == "slurmstack-local"
    assert document["clusters"][0]["cluster"]["server"] == RANGES.api_url
    assert made.exists()
