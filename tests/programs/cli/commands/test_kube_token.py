"""`slurmstack kube-token`: the credential plugin as kubectl runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import nebius.api.nebius.iam.v1 as iam
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from grpc import StatusCode

from components.clouds.nebius.resources import EXEC_API
from tests.fakes.nebius import Fails, Reply, serve
from tests.stacks import ROOT

EXCHANGE = "TokenExchangeService/Exchange"


def kube_token(home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the plugin with nothing of the environment that could hold credentials, but what is given."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("NEBIUS", "KUBERNETES", "SLURM"))}
    return subprocess.run(
        [sys.executable, "-m", "cli.entry", "kube-token"],
        cwd=ROOT,
        env={**clean, "HOME": str(home), "NO_COLOR": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def private_key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def credentials_file(home: Path) -> Path:
    """A service account's file, as the vendor's command writes it."""
    subject = {
        "type": "JWT",
        "alg": "RS256",
        "private-key": private_key(),
        "kid": "publickey-e00a",
        "iss": "serviceaccount-e00a",
        "sub": "serviceaccount-e00a",
    }
    path = home / "credentials.json"
    path.write_text(json.dumps({"subject-credentials": subject}), encoding="utf-8")
    return path


def exchanged(token: str, seconds: int) -> Reply:
    return iam.CreateTokenResponse(access_token=token, token_type="Bearer", expires_in=seconds)


def test_the_token_of_the_environment_is_printed_as_kubectl_reads_it(tmp_path: Path) -> None:
    done = kube_token(tmp_path, NEBIUS_IAM_TOKEN="secret-1")
    assert done.returncode == 0
    assert json.loads(done.stdout) == {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "secret-1"},
    }
    assert done.stderr == ""


def test_the_answer_has_the_version_that_the_client_asks_for(tmp_path: Path) -> None:
    asked = json.dumps({"apiVersion": EXEC_API, "kind": "ExecCredential", "spec": {}})
    done = kube_token(tmp_path, NEBIUS_IAM_TOKEN="secret-1", KUBERNETES_EXEC_INFO=asked)
    assert json.loads(done.stdout)["apiVersion"] == EXEC_API, "that of our own kubeconfig"


def test_a_service_accounts_file_is_exchanged_for_a_token_that_expires(tmp_path: Path) -> None:
    file = credentials_file(tmp_path)
    with serve({EXCHANGE: exchanged("secret-2", 3600)}) as server:
        named = {"SLURMSTACK_NEBIUS_CREDENTIALS": str(file), "SLURMSTACK_NEBIUS_SERVER": server.address}
        done = kube_token(tmp_path, **named)
    status = json.loads(done.stdout)["status"]
    assert status["token"] == "secret-2"
    left = datetime.fromisoformat(status["expirationTimestamp"]) - datetime.now(UTC)
    assert timedelta(minutes=50) < left <= timedelta(hours=1)
    assert done.stderr == ""
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["credentials.json"], "nothing is kept on disk"


def test_a_refused_account_says_so_and_prints_no_token(tmp_path: Path) -> None:
    refused = Fails(code=StatusCode.UNAUTHENTICATED, message="the key was revoked")
    with serve({EXCHANGE: refused}) as server:
        done = kube_token(
            tmp_path,
            SLURMSTACK_NEBIUS_CREDENTIALS=str(credentials_file(tmp_path)),
            SLURMSTACK_NEBIUS_SERVER=server.address,
        )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines()[0].endswith("the key was revoked")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("named", "said"), [("", "set NEBIUS_IAM_TOKEN"), ("broken.json", "error: ")])
def test_what_is_wrong_with_credentials_is_said_without_a_traceback(tmp_path: Path, named: str, said: str) -> None:
    (tmp_path / "broken.json").write_text("{", encoding="utf-8")
    done = kube_token(tmp_path, SLURMSTACK_NEBIUS_CREDENTIALS=str(tmp_path / named) if named else "")
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
