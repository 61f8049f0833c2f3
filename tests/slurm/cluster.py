"""Clusters for tests: one way to start any of the sandboxes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar, overload

import pytest

from images.jail.populate import IN_PROGRESS, STATE
from local.errors import LocalError
from local.images import ensure_images
from local.report import PlainReport
from tests.slurm.accounting import AccountingSandbox, accounting_config
from tests.slurm.minimal import minimal_config
from tests.slurm.pod import PREBUILT, lower
from tests.slurm.sandbox import SlurmSandbox, populate_jail

Made = TypeVar("Made", bound=SlurmSandbox)


def require_images(version: str) -> None:
    """Build the images of a version, or skip or fail the test that needs them."""
    if os.geteuid() != 0:
        pytest.skip("real daemons in namespaces need root")
    if PREBUILT:
        return
    try:
        ensure_images(PlainReport(), version)
    except LocalError as error:
        pytest.fail(str(error))


class ClusterFactory:
    """Starts clusters, which end with the fixture that made this, or when one of another version begins."""

    def __init__(self, stack: ExitStack, temporary: pytest.TempPathFactory) -> None:
        self._stack = stack
        self._temporary = temporary
        self._version = ""

    @overload
    def __call__(self, version: str = "24.11", *, kind: type[Made], **arguments: Any) -> Made: ...

    @overload
    def __call__(self, version: str = "24.11", **arguments: Any) -> SlurmSandbox: ...

    def __call__(
        self,
        version: str = "24.11",
        *,
        kind: type[SlurmSandbox] = SlurmSandbox,
        config: Mapping[str, str] | None = None,
        extra: str = "",
        jail: bool | Path = False,
        jail_mib: int | None = None,
        **more: Any,
    ) -> SlurmSandbox:
        """A running cluster.

        `kind`: `AccountingSandbox` with MariaDB and slurmdbd. `config`: all files of the ConfigMap; by default the
        least that this kind needs, with `extra` in slurm.conf. `jail`: True for a populated one, which is then the
        cluster's `jail`; `jail_mib`: how much can be
        written to it. What else there is goes to the sandbox: `workers` (2), `node_conf`, ...
        """
        require_images(version)
        if version != self._version:
            self._stack.close()
        self._version = version
        least = accounting_config if issubclass(kind, AccountingSandbox) else minimal_config
        if jail is True:
            jail = self._populated(version, jail_mib)
        wanted = least(version, extra) if config is None else config
        return self._stack.enter_context(kind(version, config=wanted, jail=jail or None, **more))

    def _populated(self, version: str, mib: int | None) -> Path:
        """A jail on top of its image: populate, which goes on where it stopped, finds its 30,000 files there."""
        work = self._temporary.mktemp(f"jail-{version}")
        self._stack.callback(shutil.rmtree, work, ignore_errors=True)
        if mib is not None:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(work)], check=True)
            self._stack.callback(subprocess.run, ["umount", "--lazy", str(work)], check=True)
        for name in ("upper", "work", "jail"):
            (work / name).mkdir()
        (work / "upper" / STATE).mkdir()
        (work / "upper" / IN_PROGRESS).touch()
        options = f"lowerdir={lower('jail', version, work)},upperdir={work}/upper,workdir={work}/work"
        subprocess.run(["mount", "-t", "overlay", "jail", "-o", options, str(work / "jail")], check=True)
        self._stack.callback(subprocess.run, ["umount", "--lazy", str(work / "jail")], check=True)
        populate_jail(version, work / "jail")
        return work / "jail"
