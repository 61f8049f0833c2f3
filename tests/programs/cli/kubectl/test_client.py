"""kubectl as a program that may not answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.errors import Failure
from cli.kubectl.client import Kubectl, connect, in_controller, slurm
from config.sections.cloud import ExistingCloud


@pytest.fixture
def silent(tmp_path: Path) -> Kubectl:
    """It never ends: the machine of the pod is lost."""
    program = tmp_path / "kubectl"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    return Kubectl(program=str(program), context="test", kubeconfig=None)


def says(monkeypatch: pytest.MonkeyPatch, directory: Path, script: str) -> Path:
    """Put a kubectl on PATH; returns a kubeconfig that it does not read."""
    program = directory / "kubectl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr("cli.kubectl.client.find_program", lambda: str(program))
    kubeconfig = directory / "kubeconfig"
    kubeconfig.touch()
    return kubeconfig


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("error: You must be logged in to the server (Unauthorized)", "lets nobody in with these credentials"),
        ('Error from server (Forbidden): User "x" cannot get path "/readyz"', "lets nobody in with these credentials"),
        ("Unable to connect to the server: dial tcp: i/o timeout", "does not answer"),
    ],
)
def test_a_server_that_refuses_is_not_called_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, told: str
) -> None:
    script = f"case \"$*\" in *get-contexts*) echo mine;; *) echo '{answer}' >&2; exit 1;; esac"
    kubeconfig = says(monkeypatch, tmp_path, script)
    with pytest.raises(Failure, match=told):
        connect(ExistingCloud(kind="existing", context="mine", kubeconfig=str(kubeconfig)))


def test_a_page_of_a_proxy_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubeconfig = says(monkeypatch, tmp_path, "echo '<html>log in</html>'")
    kubectl = connect(ExistingCloud(kind="existing", context="mine", kubeconfig=str(kubeconfig)))
    with pytest.raises(Failure, match="no Kubernetes API server: '<html>log in"):
        kubectl.items("pods")


IMMUTABLE = """\
W1123 12:00:00.000000 warnings.go:70] a warning
Error from server (Invalid): PersistentVolumeClaim "jail" is invalid: spec: Forbidden: spec is immutable after creation
@@ -10,7 +10,7 @@
   }
  },
  "VolumeName": "",
- "StorageClassName": "fast",
+ "StorageClassName": "slow",
  "VolumeMode": "Filesystem",
  "DataSource": null,

Error from server (Invalid): Deployment.apps "rest" is invalid:
* spec.selector: Required value
* spec.template: Required value
Error from server: a webhook denied it
  because of its rules
"""
"""kubectl's own words for one claim, put together with others."""


def test_a_pod_whose_machine_is_lost_is_not_waited_for(silent: Kubectl, monkeypatch: pytest.MonkeyPatch) -> None:
    for seconds in ("ANSWER_SECONDS", "_TIMEOUT"):
        monkeypatch.setattr(f"cli.kubectl.client.{seconds}", 0.1)
    done = in_controller(silent, "slurm", "squeue", seconds=0.1)
    assert (done.returncode, done.stdout, done.stderr) == (124, "", "no answer within 0.1 s")
    assert slurm(silent, "slurm", "sinfo") == ""
    with pytest.raises(Failure, match=r"no answer within 0\.1 s"):
        silent.run("exec", "login-0", seconds=0.1)


UNKNOWN = """\
unable to recognize "STDIN": no matches for kind "PodMonitor" in version "monitoring.coreos.com/v1"
unable to recognize "STDIN": no matches for kind "ServiceMonitor" in version "monitoring.coreos.com/v1"
unable to recognize "STDIN": no matches for kind "ServiceMonitor" in version "monitoring.coreos.com/v1"
"""
"""kubectl's words where an operator's API is not in the cluster."""


def complaining(tmp_path: Path, complaint: str) -> Kubectl:
    program = tmp_path / "kubectl"
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{complaint}END\nexit 1\n")
    program.chmod(0o755)
    return Kubectl(program=str(program), context="test", kubeconfig=None)


def test_an_operator_that_is_not_there_is_said_in_one_line_with_what_asks_for_it(tmp_path: Path) -> None:
    with pytest.raises(Failure) as caught:
        complaining(tmp_path, UNKNOWN).items("-f", "-")
    told = "does not know PodMonitor, ServiceMonitor (monitoring.coreos.com), which the Prometheus operator brings"
    assert caught.value.message == f"this Kubernetes cluster {told}"
    assert caught.value.hint.endswith("or remove monitoring.existing from the stack file")
    other = 'no matches for kind "Nonsense" in version "apps/v9"\n'
    with pytest.raises(Failure, match="Nonsense"):
        complaining(tmp_path, other).items("-f", "-")
