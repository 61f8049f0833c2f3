"""kubectl as a program that may not answer."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from cli.errors import Failure
from cli.kubectl.client import Kubectl, connect, in_controller, message
from config.sections.cloud import ExistingCloud


def test_a_kubeconfig_that_is_not_there_is_called_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.kubectl.client.find_program", lambda: "kubectl")
    with pytest.raises(Failure, match="there is no file"):
        connect(ExistingCloud(kind="existing", context="mine", kubeconfig=str(tmp_path / "none")))


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


def test_what_is_wrong_with_an_object_is_one_line_that_names_it() -> None:
    claim, rest, *others = message(IMMUTABLE).splitlines()
    assert claim.endswith('immutable after creation - "StorageClassName": "fast", + "StorageClassName": "slow",')
    assert 'PersistentVolumeClaim "jail" is invalid' in claim
    assert rest.endswith('"rest" is invalid: * spec.selector: Required value * spec.template: Required value')
    assert others == ["Error from server: a webhook denied it", "  because of its rules"]


UNKNOWN = """\
unable to recognize "STDIN": no matches for kind "PodMonitor" in version "monitoring.coreos.com/v1"
unable to recognize "STDIN": no matches for kind "ServiceMonitor" in version "monitoring.coreos.com/v1"
unable to recognize "STDIN": no matches for kind "ServiceMonitor" in version "monitoring.coreos.com/v1"
"""
"""kubectl's words where an operator's API is not in the cluster."""


class TwoControllers(Kubectl):
    """Of which the second one is active."""

    def run(self, *arguments: str, **_: Any) -> subprocess.CompletedProcess[str]:
        self.environment[str(len(self.environment))] = arguments[0]
        if arguments[0] == "get":
            return subprocess.CompletedProcess(arguments, 0, "controller-1", "")
        stands_by = "controller-1" not in arguments
        return subprocess.CompletedProcess(arguments, int(stands_by), "" if stands_by else "the queue", "no slurm.conf")


def test_the_active_one_of_two_controllers_is_found_and_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.kubectl.client._active", {})
    two = TwoControllers(program="kubectl", context="test", kubeconfig=None)
    assert [in_controller(two, "slurm", "squeue").stdout for _ in range(2)] == ["the queue", "the queue"]
    assert [*two.environment.values()] == ["exec", "get", "exec", "exec"]
