"""Secrets go out of a text in whatever form they stand there, and little else goes with them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

import pytest

from cli.bundle.redact import REMOVED, Redactor, redactor, without_secrets


def secret(**values: bytes) -> dict[str, object]:
    data = {key: base64.b64encode(value).decode() for key, value in values.items()}
    return {"metadata": {"name": "keys"}, "data": data}


def removed(text: str, *values: bytes) -> str:
    """The text without these values."""
    return redactor([secret(**{f"k{number}": value for number, value in enumerate(values)})])(text)


@pytest.mark.parametrize(
    "write",
    [
        str, json.dumps, lambda text: json.dumps({"a": json.dumps({"b": text})}),
        lambda text: base64.b64encode(text.encode()).decode(),
    ],
    ids=["plain", "JSON", "JSON within JSON", "Base64"],
)  # fmt: skip
def test_a_value_goes_in_every_form_in_which_it_may_stand(write: Callable[[str], str]) -> None:
    value = 'it is "qu\\oted"'
    left = removed(f"x {write(value)} y", value.encode())
    assert "<removed: secret keys/k0>" in left
    assert "oted" not in left
    assert write(value).strip('"=') not in left


def test_of_values_that_contain_each_other_none_stays() -> None:
    values = ["abcdefgh", "abcdefgh-and-more", "before-abcdefgh"]
    left = removed(" ".join(values), *(value.encode() for value in values))
    assert "abcdefgh" not in left


def test_a_key_of_several_lines_goes_by_lines_as_logs_have_them() -> None:
    key = b"-----BEGIN THING-----\nb3BlbnNzaC1rZXktdjEAAAA\nAAAABG5vbmUAAAAEbm9u\n-----END THING-----\n"
    log = "".join(f"2026-11-25T16:00:00.{n}Z {line}\n" for n, line in enumerate(key.decode().splitlines()))
    left = removed(log, key)
    assert "b3BlbnNzaC1" not in left
    assert "AAAABG5vbmU" not in left
    assert left.count("2026-11-25T16:00:00") == 4


def test_what_is_secret_in_a_file_that_is_a_secret_goes_by_itself_too() -> None:
    """As in alertmanager.yml and sssd.conf, of which programs say no whole line."""
    whom = b'receivers: [{name: team, webhook_configs: [{url: "https://chat.example/hook/T1/abcdefgh"}]}]\n'
    directory = b"ldap_uri = ldaps://ldap.example\nldap_default_authtok = hunter2hunter2\n"
    said = "Post https://chat.example/hook/T1/abcdefgh: timeout; bind with hunter2hunter2 to ldaps://ldap.example"
    left = removed(said, whom, directory)
    assert left == (
        "Post <removed: secret keys/k0>: timeout; bind with <removed: secret keys/k1> to ldaps://ldap.example"
    )
    assert "hunter2" not in removed("ldap_default_authtok = hunter2")


@pytest.mark.parametrize("value", [b"1234567", b"", b"Password", b"slurm_acct_db"])
def test_short_values_and_common_words_stay(value: bytes) -> None:
    text = "slurmdbd: short 1234567 user Password slurm_acct_db"
    assert removed(text, value) == text


PRIVATE = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\nAAAAB3NzaC1\n-----END OPENSSH PRIVATE KEY-----"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJleHAiOjE3OTU2MDAwMDB9.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        (f"found {PRIVATE} here", "b3BlbnNzaC1rZXk"),
        (json.dumps({"file": PRIVATE}), "AAAAB3NzaC1"),
        (PRIVATE.partition("-----END")[0], "AAAAB3NzaC1"),
        (f"SLURM_JWT={JWT}", "eyJleHAiOjE3OTU2MDAwMDB9"),
        ("Authorization: Bearer abcdefghijklmnop0123", "abcdefghijklmnop0123"),
        ("StoragePass=hunter2 user=slurm", "hunter2"),
        ('{"password": "two words\\" more", "user": "x"}', "two words"),
        ('{"last": "{\\"api_key\\": \\"hunter2 x\\"}"}', "hunter2 x"),
        ("mysql://slurm:hunter2@database/slurm", "hunter2"),
        ("program --token hunter2", "hunter2"),
    ],
)
def test_what_looks_like_a_secret_goes_though_nobody_knows_it(text: str, gone: str) -> None:
    left = Redactor()(text)
    assert gone not in left
    assert "<removed" in left
    if text.startswith("{"):
        json.loads(left)


@pytest.mark.parametrize(
    "text",
    [
        "AuthAltParameters=jwt_key=/run/slurmstack/keys/jwt_hs256.key",
        '{"secret": {"secretName": "munge-key"}, "automountServiceAccountToken": false}',
        "pull_secret: registry",
        "JobCompPass             = (null)",
        '{"passwd": "alice:x:10001:10001::/home/alice:/bin/bash\\n"}',
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    ],
)
def test_what_is_no_secret_stays_as_it_is(text: str) -> None:
    assert Redactor()(text) == text


def test_a_document_loses_what_its_own_keys_call_a_secret() -> None:
    document = {
        "encryptionsalt": "v1:abc",
        "config": {
            "aws:secretKey": {"secure": "AAABAPx"},
            "slurmstack:users": {"alice": {"uid": 1, "ssh_authorized_keys": ["ssh-ed25519 AAAA alice"]}},
            "slurmstack:images": {"registry": "r.example", "pull_secret": "registry"},
            "other:api-key": "hunter2",
            "list": [{"name": "DB_PASSWORD", "value": "hunter2"}, {"name": "HOME", "value": "/root"}],
        },
    }
    left = without_secrets(document)
    assert left["encryptionsalt"] == left["config"]["other:api-key"] == REMOVED
    assert left["config"]["aws:secretKey"] == {"secure": REMOVED}
    assert left["config"]["list"] == [{"name": "DB_PASSWORD", "value": REMOVED}, {"name": "HOME", "value": "/root"}]
    for kept in ("slurmstack:users", "slurmstack:images"):
        assert left["config"][kept] == document["config"][kept]  # type: ignore[index]
