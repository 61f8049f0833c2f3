"""GPUs in workers that have none, which the checks believe in and that can be taken away."""

from __future__ import annotations

import json
from typing import Final

from tests.e2e.harness import SlurmOnKubernetes
from tests.stacks import ROOT

WORKERS: Final = ("default-0", "default-1")

_RECORDED: Final = ROOT / "tests/unit/images/health/data"
_SAYS: Final = "/run/fake-gpus"
"""Where the program that plays nvidia-smi reads what to say."""


UNSEAL: Final = "mount -o remount,bind,rw /"
"""A worker's root file system is read-only; an administrator may still write there, and so may these tests."""


class FakeGpus:
    """A program plays nvidia-smi, and the settings of the checks say that each worker should have a GPU.

    `slurm.up()` brings the settings of the stack file back.
    """

    def __init__(self, slurm: SlurmOnKubernetes) -> None:
        self._slurm = slurm
        self._lines = (_RECORDED / "nvidia/h100-8.csv").read_text().splitlines()
        tool = "#!/usr/bin/python3\n" + (ROOT / "tests/fakes/gpu_tools.py").read_text()
        for node in WORKERS:
            self._write(node, "/usr/local/bin/nvidia-smi", tool)
            self.set(node, there=True)
        self._change_settings(json.dumps({"pools": {"default": {"gpus": 1}}}))

    def set(self, node: str, *, there: bool) -> None:
        """Whether nvidia-smi of a node shows its GPU from now on."""
        self._write(node, f"{_SAYS}/gpus.csv", "\n".join(self._lines[: 1 + there]) + "\n")

    def _write(self, pod: str, path: str, text: str) -> None:
        """Put a program or file into a worker."""
        slurm = self._slurm
        script = (
            f"{UNSEAL} && mkdir -p $(dirname {path}); cat > {path}.new && chmod 755 {path}.new && mv {path}.new {path}"
        )
        slurm.kubectl.run(
            "exec", "-i", "-n", slurm.namespace, pod, "-c", "slurmd", "--", "sh", "-c", script, stdin=text
        )

    def _change_settings(self, settings: str) -> None:
        slurm = self._slurm
        patch = json.dumps({"data": {"settings.json": settings}})
        slurm.kubectl.run("patch", "configmap", "health-settings", "-n", slurm.namespace, "-p", patch)
        for pod in WORKERS:  # a change of the pod makes kubelet look at its files at once
            slurm.kubectl.run("annotate", "pod", pod, "-n", slurm.namespace, "--overwrite", "slurmstack/test=looked")
