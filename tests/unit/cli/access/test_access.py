"""Ways into a cluster: `slurmstack login` and `slurmstack dashboard`."""

from __future__ import annotations

import base64
import io
import json
import socket
import subprocess
import threading
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from cli.access import login
from cli.access.login import open_session
from cli.commands.access import open_dashboard, write_dashboards
from cli.errors import Failure
from config import load_config
from config.cluster import ClusterConfig
from tests import stacks
from tests.fakes.kubectl import FakeKubectl, listed, thing
from tests.stacks import with_change


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


@pytest.mark.parametrize(("status", "hint"), [(255, True), (0, False), (3, False)])
def test_a_login_node_that_does_not_answer_is_given_up_and_one_is_told_where_to_look(
    cluster: FakeKubectl,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    status: int,
    *,
    hint: bool,
) -> None:
    asked: list[str] = []

    def ssh(command: list[str], **_: bool) -> subprocess.CompletedProcess[bytes]:
        asked.append(" ".join(command))
        return subprocess.CompletedProcess(command, status)

    monkeypatch.setattr(login, "ssh_program", lambda **_: "ssh")
    monkeypatch.setattr(subprocess, "run", ssh)
    assert open_session(cluster, load_config(stacks.dev()), user=None, key=None, command=["id"]) == status
    assert "-o ConnectTimeout=10 " in asked[0]
    assert asked[0].endswith("@203.0.113.7 id")
    logs = "`kubectl --context test logs -n slurm -l app.kubernetes.io/component=login -c sshd --prefix`"
    assert (logs in capsys.readouterr().err) == hint


@pytest.fixture
def stack() -> ClusterConfig:
    sections = with_change(stacks.dev(), "rest", {"enabled": True})
    return load_config(with_change(sections, "dashboard", {"enabled": True}))


def kubectl(*, there: bool = True) -> FakeKubectl:
    return FakeKubectl(answers=[({"service"}, listed(*([thing("Service", "rest")] if there else [])), "")])


def test_a_stack_without_a_dashboard_says_what_to_set() -> None:
    with pytest.raises(Failure, match="has no dashboard") as caught:
        open_dashboard(kubectl(), load_config(stacks.dev()), port=0, until=threading.Event())
    assert "slurmstack:dashboard: {enabled: true}" in caught.value.hint


def test_a_dashboard_that_is_not_applied_yet_is_said_to_be_so(stack: ClusterConfig) -> None:
    with pytest.raises(Failure, match="there is no dashboard in namespace slurm yet"):
        open_dashboard(kubectl(there=False), stack, port=0, until=threading.Event())


def test_a_port_that_somebody_else_has_is_named(stack: ClusterConfig) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(Failure, match=f"port {port} of this machine is not free"):
            open_dashboard(kubectl(), stack, port=port, until=threading.Event())


def test_the_files_for_a_grafana_are_written_without_a_cluster_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "new" / "grafana"
    measured = with_change(stacks.dev(), "monitoring", {"enabled": True})
    write_dashboards(load_config(measured), directory)
    written = sorted(directory.iterdir())
    assert [path.name for path in written] == [f"slurm-slurm-{name}.json" for name in ("cluster", "jobs", "nodes")]
    assert all(json.loads(path.read_text())["panels"] for path in written)
    assert sorted(capsys.readouterr().out.split()) == [str(path) for path in written]


def test_where_nothing_is_measured_or_nothing_can_be_written_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="has no figures"):
        write_dashboards(load_config(with_change(stacks.dev(), "monitoring", {})), tmp_path)
    (tmp_path / "file").touch()
    measured = load_config(with_change(stacks.dev(), "monitoring", {"enabled": True}))
    with pytest.raises(Failure, match="the dashboards cannot be written: "):
        write_dashboards(measured, tmp_path / "file")


def test_what_kubectl_says_when_it_cannot_lead_there_is_told(
    stack: ClusterConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = MagicMock(stderr=io.BytesIO(b"no pods are there\n"))
    ended.poll.return_value = 1
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: ended)
    with pytest.raises(Failure, match="port-forward ended: no pods are there"):
        open_dashboard(kubectl(), stack, port=0, until=threading.Event())
    ended.wait.assert_called_once()
