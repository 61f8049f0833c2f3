"""slurmrestd's command line, and the certificate that nginx gets."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from images.rest.nginx_conf import render
from images.rest.proxy import Certificate
from images.rest.slurmrestd import SLURM_CONF, command, environment
from slurm.certificates import server_certificate
from slurm.names import REST_PORT

SEED = "A" * 43 + "="
OTHER = "B" * 42 + "A="


def write(secret: Path, *names: str, key_seed: str = SEED) -> None:
    (secret / "tls.crt").write_text(server_certificate(SEED, "slurm", names).certificate)
    (secret / "tls.key").write_text(server_certificate(key_seed, "slurm", names).private_key)


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def certificate(tmp_path: Path, said: list[str]) -> Certificate:
    (tmp_path / "secret").mkdir()
    return Certificate(tmp_path / "secret", tmp_path / "tls.pem", said.append)


def test_a_new_pair_is_taken_once(tmp_path: Path, certificate: Certificate) -> None:
    assert not certificate.refresh(), "there is none yet"
    write(tmp_path / "secret", "rest")
    assert [certificate.refresh() for _ in range(2)] == [True, False]
    pem = tmp_path / "tls.pem"
    assert pem.read_text().count("PRIVATE KEY") == 2
    assert stat.S_IMODE(pem.stat().st_mode) == 0o600
    write(tmp_path / "secret", "rest", "api.example.com")
    assert certificate.refresh()


def test_a_pair_that_does_not_fit_leaves_the_one_before_and_is_said_once(
    tmp_path: Path, certificate: Certificate, said: list[str]
) -> None:
    write(tmp_path / "secret", "rest")
    certificate.refresh()
    before = (tmp_path / "tls.pem").read_bytes()
    write(tmp_path / "secret", "rest", key_seed=OTHER)
    assert [certificate.refresh() for _ in range(3)] == [False] * 3
    assert (tmp_path / "tls.pem").read_bytes() == before
    (line,) = said
    assert "the one before stays" in line
    assert not list(tmp_path.glob("*.new")), "a key must not be left about"
    write(tmp_path / "secret", "rest", "api.example.com")
    assert certificate.refresh(), "a good pair after a bad one"


def test_what_is_no_certificate_is_said_and_not_taken(
    tmp_path: Path, certificate: Certificate, said: list[str]
) -> None:
    write(tmp_path / "secret", "rest")
    for content in ("", "nonsense", "-----BEGIN CERTIFICATE-----\n"):
        (tmp_path / "secret/tls.crt").write_text(content)
        assert not certificate.refresh()
    assert "there is none to start with" in said[0]


@pytest.mark.parametrize(
    ("conf", "parts"),
    [
        ("AccountingStorageType=accounting_storage/slurmdbd\n", "slurmctld,slurmdbd"),
        ("#AccountingStorageType=accounting_storage/slurmdbd\n", "slurmctld"),
        ("accountingstoragetype = accounting_storage/slurmdbd", "slurmctld,slurmdbd"),
    ],
)
def test_slurmdbd_s_part_of_the_api_is_there_with_accounting(conf: str, parts: str) -> None:
    argv = command(conf, threads="3", max_connections="9")
    assert argv[argv.index("-s") + 1] == parts
    assert argv[argv.index("-a") + 1] == "rest_auth/jwt", "and never rest_auth/local, which trusts the socket"
    assert argv[argv.index("-f") + 1] == str(SLURM_CONF)
    assert (argv[argv.index("-t") + 1], argv[argv.index("--max-connections") + 1]) == ("3", "9")
    assert argv[-1].startswith("unix:")
    assert environment({"PATH": "/bin"})["SLURM_JWT"] == "daemon", "and wants no munge"


def test_pages_of_one_address_are_bounded_and_what_is_refused_is_in_no_error_log_which_has_the_query() -> None:
    conf = render(
        run=Path("/r"), certificate=Path("/r/tls.pem"), slurmrestd=Path("/s"), ipv6=True, shutdown_seconds=30,
        dashboard=Path("/d"),
    )  # fmt: skip
    page = conf[conf.index("location /dashboard {") :].partition("}")[0]
    assert "limit_req zone=page burst=50 nodelay;" in page
    assert "limit_req_status 429;" in page
    assert "limit_req_log_level info;" in page
    assert "limit_req_zone $binary_remote_addr zone=page:1m rate=20r/s;" in conf


@pytest.mark.parametrize(
    ("ipv6", "listen"), [(True, f"[::]:{REST_PORT} ssl ipv6only=off;"), (False, f"{REST_PORT} ssl;")]
)
def test_nginx_listens_with_tls_only(ipv6: bool, listen: str) -> None:
    conf = render(run=Path("/r"), certificate=Path("/r/tls.pem"), slurmrestd=Path("/s"), ipv6=ipv6, shutdown_seconds=30)
    listening = [line.strip() for line in conf.splitlines() if line.strip().startswith("listen")]
    assert listening == ["listen unix:/r/away.sock;", f"listen {listen}"]
