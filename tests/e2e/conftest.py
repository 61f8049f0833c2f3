"""The real local Kubernetes, and one Slurm cluster on it for each way to apply."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from local import cluster as local_cluster
from tests.e2e import failures
from tests.e2e.failures import LANE
from tests.e2e.harness import SlurmOnKubernetes, make_key, nothing_is_left, slurmstack
from tests.stacks import dev

ENGINES = ["kubectl", *(["pulumi"] if shutil.which("pulumi") else [])]
"""Ways to apply: with kubectl always, with the real Pulumi engine where its command is on PATH."""

LONGEST_OF_ALL = ("test_monitoring.py", "test_elastic.py")
"""What all begins with: each has a cluster of its own, and would run alone at the end for minutes."""

LONGEST = ("test_policy.py", "test_rest.py", "test_accounting.py")
"""What comes first on the lanes' clusters, so that none of them is the last one for long."""

EXISTED = pytest.StashKey[bool]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Most end-to-end tests come last, and among them first those that start and stop the local cluster.

    With several engines each lane goes through them one after the other, as each has a Slurm cluster of its own.
    """

    def order(item: pytest.Item) -> tuple[int, int, int]:
        if item.path.name in LONGEST_OF_ALL:
            return -1, 0, LONGEST_OF_ALL.index(item.path.name)
        length = LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST)
        if "tests/e2e/" not in item.nodeid:
            return 0, 0, 0
        engine = getattr(item, "callspec", None) and item.callspec.params.get("slurm")  # type: ignore[attr-defined]
        return 1 if "make_up" in item.nodeid else 2, ENGINES.index(engine) if engine in ENGINES else 0, length

    items.sort(key=order)


def _leads_lanes(config: pytest.Config) -> bool:
    return bool(config.getoption("numprocesses", None)) and not LANE and os.geteuid() == 0


def pytest_sessionstart(session: pytest.Session) -> None:
    """Start the local cluster for all lanes."""
    if _leads_lanes(session.config):
        session.config.stash[EXISTED] = local_cluster.status().exists
        slurmstack("local", "up", timeout=3600)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Take it down after the last lane."""
    if not session.config.stash.get(EXISTED, True):
        slurmstack("local", "down")


@pytest.fixture(scope="session")
def no_cluster_before() -> None:
    """For tests that take the local cluster down: refuses where that would destroy somebody's own."""
    if os.geteuid() != 0:
        pytest.skip("a local Kubernetes needs root")
    if local_cluster.status().exists:
        pytest.skip("a local cluster is there, and this test would remove it with its data; `make down` first")
    slurmstack("local", "down")  # what a removal that was cut short has left


@pytest.fixture(scope="session")
def local_kubernetes() -> Iterator[None]:
    """The local cluster, taken down afterwards if it was not there before."""
    if os.geteuid() != 0:
        pytest.skip("a local Kubernetes needs root")
    if LANE:
        yield  # the process that leads the lanes has started it
        return
    existed = local_cluster.status().exists
    slurmstack("local", "up", timeout=3600)
    yield
    if not existed:
        slurmstack("local", "down")


def keep_state(engine: str, directory: Path) -> None:
    """Have Pulumi's engine keep its state there."""
    if engine == "pulumi":
        os.environ["PULUMI_BACKEND_URL"] = f"file://{directory}"
        os.environ["PULUMI_CONFIG_PASSPHRASE"] = "test"


@contextmanager
def own_cluster(
    engine: str, directory: Path, sections: dict[str, Any], *nodes: str, users: dict[str, Any] | None = None
) -> Iterator[SlurmOnKubernetes]:
    """A cluster for the tests of a file, with these nodes; afterwards it is gone, and its data with it.

    `users`: by default alice with a key of her own.
    """
    users = users or {"alice": {"uid": 10001, "ssh_authorized_keys": [make_key(directory / "key")]}}
    keep_state(engine, directory)
    slurm = SlurmOnKubernetes(engine=engine, directory=directory, sections={**sections, "users": users})
    try:
        slurm.up()
        slurm.await_idle(*nodes)
    except BaseException:
        print(f"logs: {slurm.collect_logs(f'setup-{slurm.namespace}')}")
        raise
    yield slurm
    options = ("--yes", "--kill-jobs", "--delete-data", "--engine", engine, "--config", str(slurm.file))
    slurmstack("destroy", *options, timeout=300)


@pytest.fixture(scope="session", params=ENGINES)
def slurm(
    request: pytest.FixtureRequest, local_kubernetes: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SlurmOnKubernetes]:
    """A Slurm cluster in a namespace of its own, with the user alice and her own key in the stack file."""
    engine: str = request.param
    directory = tmp_path_factory.mktemp(engine)
    # What others see of it is the same; clusters of single tests have homes in the jail, as it is by default.
    sections = dev() | {
        "cluster": {"namespace": "-".join(filter(None, ("e2e", engine, LANE)))},
        "jail": {**dev().get("jail", {}), "homes": {"size": "1Gi"}},
    }
    users = {"alice": {"uid": 10001, "ssh_authorized_keys": [make_key(directory / "key")], "sudo": True}}
    with own_cluster(engine, directory, sections, "default-0", "default-1", users=users) as slurm:
        yield slurm
    nothing_is_left(slurm)


@pytest.fixture
def two_nodes(request: pytest.FixtureRequest, slurm: SlurmOnKubernetes) -> SlurmOnKubernetes:
    """The cluster as a test expects it at its start: two idle nodes and the stack file of the beginning."""
    if request.node.get_closest_marker("disruptive"):
        slurmstack("local", "up")  # a machine that the test before has lost: one failure is enough
    default = {name: value for name, value in dev().items() if name in {"worker_nodes", "partitions", "slurm"}}
    slurm.slurm("scancel --state=pending; scancel --state=running", check=False)
    if {**slurm.sections, **default} != slurm.sections:
        slurm.sections = {**slurm.sections, **default}
        slurm.up()
    slurm.await_idle("default-0", "default-1")
    return slurm


def pytest_configure(config: pytest.Config) -> None:
    """Have failures told at once: pytest does so at the end, which a run that is cut short does not see."""
    failures.have_told(config)
