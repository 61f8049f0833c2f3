"""Ways into a cluster: `slurmstack login`, and a port that kubectl opens."""

from __future__ import annotations

import base64
import subprocess

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from cli.commands import access as login
from cli.commands.access import open_session
from cli.errors import Failure
from config import load_config
from tests import stacks
from tests.fakes.kubectl import FakeKubectl


@pytest.fixture
def cluster() -> FakeKubectl:
    """A cluster with login nodes."""
    pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    service = {"kind": "Service", "spec": {"clusterIP": "203.0.113.7"}}
    secret = {"kind": "Secret", "data": {"ssh_host_ed25519_key": base64.b64encode(pem).decode()}}
    return FakeKubectl(answers=[({"service"}, service, ""), ({"secret"}, secret, "")])


def test_a_command_without_a_user_before_it_is_told_how_it_is_written(cluster: FakeKubectl) -> None:
    with pytest.raises(Failure, match="'id' is not a user of the stack file") as caught:
        open_session(cluster, load_config(stacks.dev()), user="id", key=None, command=[])
    assert "`slurmstack login USER -- COMMAND`" in caught.value.hint


def test_a_login_node_that_does_not_answer_is_given_up(cluster: FakeKubectl, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def ssh(command: list[str], **_: bool) -> subprocess.CompletedProcess[bytes]:
        asked.append(" ".join(command))
        return subprocess.CompletedProcess(command, 255)

    monkeypatch.setattr(login, "ssh_program", lambda **_: "ssh")
    monkeypatch.setattr(subprocess, "run", ssh)
    assert open_session(cluster, load_config(stacks.dev()), user=None, key=None, command=["id"]) == 255
    assert "-o ConnectTimeout=10 " in asked[0]
    assert asked[0].endswith("@203.0.113.7 id")
