"""What an apply takes: of everything, of nothing, of a setting."""

from __future__ import annotations

from tests.bench.cluster import Cluster
from tests.bench.row import Measuring, timed


def stack(bench: Measuring, cluster: Cluster) -> None:
    """The whole stack. Where no jail is there yet, the first time fills it."""
    if not cluster.has_filled_jail:
        bench.take("whole stack -> first srun, empty jail", [cluster.start()], goal=30)
        cluster.destroy()

    def once(number: int) -> float:
        if number:
            cluster.destroy()
        return cluster.start()

    bench.measure("whole stack -> first srun, jail filled", once, runs=4, goal=15)


def unchanged(bench: Measuring, cluster: Cluster) -> None:
    """An apply and a preview that find nothing to do."""
    name = _of("up without a change", cluster)
    bench.measure(name, lambda _: timed(cluster.up), runs=5, goal=3)
    bench.measure(_of("preview without a change", cluster), lambda _: timed(cluster.preview), runs=5, goal=3)


def setting(bench: Measuring, cluster: Cluster) -> None:
    """A line of slurm.conf."""

    def once(number: int) -> float:
        value = 310 + number
        active = f"scontrol show config | grep -q 'MinJobAge .*= {value} sec'"
        return cluster.applied_until(
            "slurm.settings.MinJobAge", value, lambda: cluster.slurm(f"until {active}; do sleep 0.1; done")
        )

    goal = 3 if cluster.engine == "kubectl" else 8
    bench.measure(_of("setting changed -> active", cluster), once, runs=5, goal=goal)


def _of(name: str, cluster: Cluster) -> str:
    return name if cluster.engine == "kubectl" else f"{name}, {cluster.engine} engine"
