"""Clusters for tests: one way to start any of the sandboxes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, overload

import pytest

from images.jail.populate import IN_PROGRESS, STATE
from local.errors import LocalError
from local.images import ensure_images
from local.report import PlainReport
from tests.rootfs import rootfs
from tests.shared import made_once
from tests.slurm.accounting import AccountingSandbox, make_database
from tests.slurm.minimal import accounting_config, minimal_config
from tests.slurm.sandbox import SlurmSandbox, populate_jail

Made = TypeVar("Made", bound=SlurmSandbox)


def require_images(version: str) -> None:
    """Build the images of a version, or skip or fail the test that needs them."""
    if os.geteuid() != 0:
        pytest.skip("real daemons in namespaces need root")
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
        above: Iterable[Path] = (),
        **more: Any,
    ) -> SlurmSandbox:
        """A running cluster.

        `kind`: `AccountingSandbox` with MariaDB and slurmdbd. `config`: all files of the ConfigMap; by default the
        least that this kind needs, with `extra` in slurm.conf. `jail`: True for a populated one, which is then the
        cluster's `jail`; `above`: more layers of it, topmost first. What else there is goes to the sandbox: `workers`
        (2), `node_conf`, ...
        """
        require_images(version)
        if version != self._version:
            self._stack.close()
        self._version = version
        least = minimal_config
        if issubclass(kind, AccountingSandbox):
            least = accounting_config
            more["database"] = made_once(self._temporary, f"database-{version}", partial(make_database, version))
        if jail is True:
            jail = self._populated(version, above)
        wanted = least(version, extra) if config is None else config
        return self._stack.enter_context(kind(version, config=wanted, jail=jail or None, **more))

    def _populated(self, version: str, above: Iterable[Path]) -> Path:
        """A jail on top of what its image and populate have brought."""
        work = self._temporary.mktemp(f"jail-{version}")
        self._stack.callback(shutil.rmtree, work, ignore_errors=True)
        made = made_once(self._temporary, f"populated-{version}", partial(_populate, version))
        return self._stack.enter_context(
            _overlay(work, ":".join(map(str, [*above, made / "upper", rootfs("jail", version)])))
        )


def _populate(version: str, work: Path) -> None:
    """Leave in `upper` what populate, which goes on where it stopped, writes besides the image's 30,000 files."""
    (work / "upper" / STATE).mkdir(parents=True)
    (work / "upper" / IN_PROGRESS).touch()
    with _overlay(work, str(rootfs("jail", version))) as jail:
        populate_jail(version, jail)


@contextmanager
def _overlay(work: Path, layers: str) -> Iterator[Path]:
    """A directory with these layers, topmost first, and above them one that can be written."""
    for name in ("upper", "work", "jail"):
        (work / name).mkdir(exist_ok=True)
    options = f"lowerdir={layers},upperdir={work}/upper,workdir={work}/work"
    subprocess.run(["mount", "-t", "overlay", "jail", "-o", options, str(work / "jail")], check=True)
    try:
        yield work / "jail"
    finally:
        subprocess.run(["umount", "--lazy", str(work / "jail")], check=True)
