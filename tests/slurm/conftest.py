"""Fixtures for tests with real Slurm daemons. They need root and build the images first (cached afterwards)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from local.errors import LocalError
from local.images import ensure_images
from local.report import PlainReport
from tests.slurm.pod import PREBUILT
from tests.slurm.sandbox import SlurmSandbox

VERSIONS = ("24.11", "26.05")


def minimal_config(version: str, extra: str = "", **files: str) -> dict[str, str]:
    """The least that a cluster of dynamic nodes needs; `extra` is added to slurm.conf."""
    slurm_conf = f"""\
ClusterName=sandbox
SlurmctldHost=controller-0
SlurmUser=slurm
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldParameters=enable_configless
MaxNodeCount=64
TreeWidth=65533
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=1
LaunchParameters=use_interactive_step,disable_send_gids
MailProg=/bin/true
NodeSet=default Feature=default
PartitionName=main Nodes=default Default=YES State=UP
{extra}
"""
    return {"slurm.conf": slurm_conf, "cgroup.conf": "CgroupPlugin=disabled\n", **files}


@pytest.fixture(scope="session", params=VERSIONS)
def slurm_version(request: pytest.FixtureRequest) -> str:
    """Each supported Slurm version, with its images built."""
    version: str = request.param
    _require_images(version)
    return version


def _require_images(version: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("real daemons in namespaces need root")
    if PREBUILT:
        return
    try:
        ensure_images(PlainReport(), version)
    except LocalError as error:
        pytest.fail(str(error))


@pytest.fixture
def make_sandbox() -> Iterator[Callable[..., SlurmSandbox]]:
    """Makes sandboxes that end with the test: `make_sandbox("24.11", config=..., workers=1)`."""
    with ExitStack() as stack:

        def make(version: str = "24.11", **arguments: object) -> SlurmSandbox:
            _require_images(version)
            return stack.enter_context(SlurmSandbox(version, **arguments))  # type: ignore[arg-type]

        yield make
