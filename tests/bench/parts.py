"""The parts of a run, in the order in which they are measured."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from local import cluster as local_cluster
from tests.bench import (
    accounting,
    apply,
    backup,
    command_line,
    confinement,
    elastic,
    health,
    jobs,
    look,
    memory,
    rest,
    scaling,
    start,
    upgrade,
)
from tests.bench.cluster import Cluster
from tests.bench.failover import failover
from tests.bench.faults import faults
from tests.bench.row import Measuring
from tests.bench.scale.part import scale
from tests.bench.scale.restart import restart
from tests.bench.scale.resume import resume
from tests.bench.scale.scrape import scrape
from tests.bench.scale.watching import watching


class UnusableError(Exception):
    """What a part needs is not on this machine."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """Rows that are measured together."""

    name: str
    about: str
    measure: Callable[[Measuring, Cluster], None] | None = None
    """What is measured on a Slurm cluster on Kubernetes."""
    engine: str = "kubectl"
    """With what that cluster is applied."""
    alone: Callable[[Measuring], None] | None = None
    """What is measured without one."""


def _engine(bench: Measuring, cluster: Cluster) -> None:
    """What an apply takes with Pulumi's own engine."""
    apply.unchanged(bench, cluster)
    apply.setting(bench, cluster)
    scaling.scaling(bench, cluster)


PARTS = (
    Part(name="stack", about="the whole stack, until the first srun", measure=apply.stack),
    Part(name="unchanged", about="up and preview without a change", measure=apply.unchanged),
    Part(name="scaling", about="one more node, until a job runs on it", measure=scaling.scaling),
    Part(name="setting", about="a line of slurm.conf, until it is active", measure=apply.setting),
    Part(name="command", about="status, login, --help", measure=command_line.command_line),
    Part(name="controller", about="the controller deleted, until sbatch works", measure=start.controller),
    Part(name="start", about="from submission to start", measure=start.start),
    Part(name="array", about="an array of 1,000 tasks", measure=jobs.array),
    Part(name="elastic", about="jobs on an empty elastic pool, and how it empties", measure=elastic.elastic),
    Part(name="confinement", about="start and array with `confinement: auto`, and off", measure=confinement.here),
    Part(name="rest", about="submissions through the REST API", measure=rest.rest),
    Part(name="policy", about="500 users in 50 accounts", measure=accounting.policy),
    Part(name="records", about="sacct with 10,000 jobs", measure=accounting.records),
    Part(name="health", about="what checks cost; faults, until they are acted on", measure=health.health),
    Part(name="look", about="status, doctor, the page; monitoring at rest", measure=look.look),
    Part(name="memory", about="memory of each control pod at rest", measure=memory.memory),
    Part(name="upgrade", about="another release of Slurm, under submissions", measure=upgrade.upgrade),
    Part(name="engine", about="unchanged, setting and scaling with Pulumi's engine", measure=_engine, engine="pulumi"),
    Part(name="render", about="render of 1, 10, 100 pools", alone=command_line.render),
    Part(
        name="cgroups",
        about="start and array with cgroups and without, in a guest machine",
        alone=confinement.cgroups,
    ),
    Part(name="scale", about="100, 300, 1,000 slurmd on this machine, without Kubernetes", alone=scale),
    Part(name="resume", about="100, 500, 1,000 nodes of an elastic pool for a job, without Kubernetes", alone=resume),
    Part(name="restart", about="slurmctld ended in order with 10,000 jobs queued, without Kubernetes", alone=restart),
    Part(name="failover", about="two controllers: kills and pauses, without Kubernetes", alone=failover),
    Part(name="faults", about="10,000 jobs through 200 faults of two controllers, without Kubernetes", alone=faults),
    Part(name="backup", about="a backup and its restore, without Kubernetes", alone=backup.backup),
    Part(name="watching", about="what looking at 5,000 nodes costs, without Kubernetes", alone=watching),
    Part(name="scrape", about="figures and page with 1,000 slurmd, 10,000 jobs, without Kubernetes", alone=scrape),
)


def find(names: Sequence[str]) -> list[Part]:
    """The named parts in their order, all without names. Raises ValueError for a name that is none."""
    known = [part.name for part in PARTS]
    if unknown := sorted(set(names) - set(known)):
        raise ValueError(f"no such part: {', '.join(unknown)} (there are: {', '.join(known)})")
    return [part for part in PARTS if not names or part.name in names]


def measure(parts: Sequence[Part], bench: Measuring) -> None:
    """Measure the parts, each on the cluster that it needs, and note what cannot be measured here."""
    for engine in dict.fromkeys(part.engine for part in parts if part.measure):
        of_engine = [part for part in parts if part.measure and part.engine == engine]
        if engine == "pulumi" and shutil.which("pulumi") is None:
            bench.left_out.append(f"{', '.join(part.name for part in of_engine)} (no `pulumi` on PATH)")
            continue
        with _cluster(engine, bench) as cluster:
            for part in of_engine:
                _measure_on(cluster, part, bench)
    for part in parts:
        if part.alone:
            bench.part = part.name
            part.alone(bench)


def _measure_on(cluster: Cluster, part: Part, bench: Measuring) -> None:
    bench.part = part.name
    if part.name != "stack":
        if not cluster.pods():
            cluster.start()
        cluster.begin_again()
    assert part.measure
    part.measure(bench, cluster)


@contextmanager
def _cluster(engine: str, bench: Measuring) -> Iterator[Cluster]:
    """A cluster of this run; what an earlier run has left of it is taken away first, and all of it at the end."""
    if not local_cluster.status().healthy:
        raise UnusableError("the local cluster is not running; `make up` starts it")
    bench.part = engine
    with TemporaryDirectory(prefix="slurmstack-bench-") as directory:
        if engine == "pulumi":
            os.environ["PULUMI_BACKEND_URL"] = f"file://{directory}"
            os.environ["PULUMI_CONFIG_PASSPHRASE"] = "bench"
        cluster = Cluster(engine, Path(directory))
        if cluster.pods():
            bench.say("an earlier run has left its cluster; it is taken away")
            cluster.destroy(delete_data=True)
        try:
            yield cluster
        finally:
            bench.say("the cluster is taken away")
            cluster.destroy(delete_data=True)
