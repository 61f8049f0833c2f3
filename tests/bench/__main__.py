"""`python -m tests.bench`, which `make bench` calls: measures, keeps the figures."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tests.bench import apply, commands, elastic, figures, health, jobs, restart, resume, roll, standby, upgrade
from tests.bench.cluster import Cluster, cluster_of
from tests.bench.figures import Bench, Run

DESCRIPTION = """\
Measures how long the things take that a user waits for, each several times, and prints median and spread beside the
goal. Without PARTS everything is measured. The machine should do nothing else meanwhile.
"""

EPILOG = """\
parts:
{parts}

Where a part fails, what was measured before is kept. What the rows mean: docs/benchmarks/README.md.
"""


@dataclass(frozen=True, kw_only=True)
class Part:
    """Rows that are measured together."""

    about: str
    measure: Callable[[Bench, Cluster], None] | None = None
    """What is measured on a Slurm cluster on Kubernetes."""
    engine: str = "kubectl"
    """With what that cluster is applied."""
    alone: Callable[[Bench], None] | None = None
    """What is measured without one."""


PARTS = {
    "stack": Part(about="the whole stack, until the first srun", measure=apply.stack),
    "unchanged": Part(about="up and preview without a change", measure=apply.unchanged),
    "scaling": Part(about="one more node, until a job runs on it", measure=apply.scaling),
    "setting": Part(about="a line of slurm.conf, until it is active", measure=apply.setting),
    "command": Part(about="status, login", measure=commands.commands),
    "controller": Part(about="the controller deleted, until sbatch works", measure=jobs.controller),
    "lost": Part(about="the controller's machine off, until sbatch works", measure=jobs.lost),
    "start": Part(about="from submission to start", measure=jobs.start),
    "array": Part(about="an array of 1,000 tasks", measure=jobs.array),
    "elastic": Part(about="jobs on an empty elastic pool", measure=elastic.elastic),
    "health": Part(about="what a job's checks cost; faults, until they are acted on", measure=health.health),
    "roll": Part(about="another template for 20 workers, half of them busy", measure=roll.roll),
    "upgrade": Part(about="another release of Slurm, under submissions", measure=upgrade.upgrade),
    "engine": Part(about="applies with Pulumi's engine", measure=apply.engine, engine="pulumi"),
    "restart": Part(about="slurmctld with 10,000 jobs queued, without Kubernetes", alone=restart.restart),
    "standby": Part(about="one of two controllers killed, paused, without Kubernetes", alone=standby.standby),
    "resume": Part(about="a job on 100, 500, 1,000 nodes that are off, without Kubernetes", alone=resume.resume),
}
"""In the order in which they are measured."""


def main(arguments: Sequence[str]) -> int:
    """The exit status."""
    parts = "\n".join(f"  {name:<11} {part.about}" for name, part in PARTS.items())
    command = argparse.ArgumentParser(
        prog="python -m tests.bench", description=DESCRIPTION, epilog=EPILOG.format(parts=parts),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    command.add_argument("parts", nargs="*", metavar="PARTS", help="what to measure; all by default")
    command.add_argument("--runs", type=int, metavar="N", help="measure each row N times, not as often as it says")
    command.add_argument("--json", type=Path, metavar="FILE", help="keep the figures here")
    options = command.parse_args(arguments)
    if unknown := sorted({*options.parts} - PARTS.keys()):
        command.error(f"no such part: {', '.join(unknown)} (there are: {', '.join(PARTS)})")
    new = run([name for name in PARTS if name in options.parts or not options.parts], options)
    print(figures.show(new))
    return 1 if new.failed else 0


def run(names: list[str], options: argparse.Namespace) -> Run:
    """Measure, and keep what there is, however it ends."""
    bench, made = Bench(runs=options.runs), figures.begin(names, complete=len(names) == len(PARTS))
    try:
        measure(names, bench)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  what was measured in an hour is kept
        traceback.print_exc(limit=-4)
        made.failed = f"{bench.part}: {(str(error).strip() or repr(error)).splitlines()[0]}"
    made.rows, made.left_out = bench.rows, bench.left_out
    if made.rows:
        path = options.json or made.default_path()
        made.write(path)
        print(f"raw values are in {path}", file=sys.stderr)
    return made


def measure(names: list[str], bench: Bench) -> None:
    """Measure the parts, each on the cluster that it needs, and note what cannot be measured here."""
    for engine in ("kubectl", "pulumi"):
        of_engine = {name: part for name in names if (part := PARTS[name]).measure and part.engine == engine}
        if of_engine and shutil.which(engine) is None and engine == "pulumi":
            bench.leave_out(f"{', '.join(of_engine)} (no `pulumi` on PATH)")
        elif of_engine:
            bench.part = engine
            with cluster_of(engine, bench) as cluster:
                for name, part in of_engine.items():
                    bench.part = name
                    if name != "stack":
                        cluster.begin_again()
                    assert part.measure
                    part.measure(bench, cluster)
    for name in names:
        if alone := PARTS[name].alone:
            bench.part = name
            alone(bench)


def _interrupt(signal_number: int, frame: object) -> NoReturn:
    """However it is stopped, it takes away what it has made."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    for stop in (signal.SIGINT, signal.SIGTERM):  # both by name: started in the background, Python would ignore Ctrl-C
        signal.signal(stop, _interrupt)
    sys.exit(main(sys.argv[1:]))
