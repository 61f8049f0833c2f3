"""What an apply takes: of everything, of nothing, of a setting, of one more node."""

from __future__ import annotations

from tests.bench.cluster import WORKERS, Cluster
from tests.bench.figures import Bench, timed

ON_THREE = "[ $(srun --immediate=1 -N3 hostname 2>/dev/null | sort -u | wc -l) = 3 ]"


def stack(bench: Bench, cluster: Cluster) -> None:
    """The whole stack. Where no jail is there yet, the first time fills it."""
    if not cluster.has_filled_jail:
        bench.take("whole stack -> first srun, empty jail", [cluster.start()], goal=30)
        cluster.destroy()

    def once(number: int) -> float:
        if number:
            cluster.destroy()
        return cluster.start()

    bench.measure("whole stack -> first srun, jail filled", once, runs=4, goal=15)


def unchanged(bench: Bench, cluster: Cluster) -> None:
    """An apply and a preview that find nothing to do."""
    bench.measure(_of("up without a change", cluster), lambda _: timed(cluster.up), runs=5, goal=3)
    bench.measure(_of("preview without a change", cluster), lambda _: timed(cluster.preview), runs=5, goal=3)


def setting(bench: Bench, cluster: Cluster) -> None:
    """A line of slurm.conf."""

    def once(number: int) -> float:
        value = 310 + number
        active = f"scontrol show config | grep -q 'MinJobAge .*= {value} sec'"
        return cluster.applied_until(
            "slurm.settings.MinJobAge", value, lambda: cluster.slurm(f"until {active}; do sleep 0.1; done")
        )

    goal = 3 if cluster.engine == "kubectl" else 8
    bench.measure(_of("setting changed -> active", cluster), once, runs=5, goal=goal)


def scaling(bench: Bench, cluster: Cluster) -> None:
    """From the start of the apply to a job that runs on the new node too."""

    def once(_: int) -> float:
        taken = cluster.applied_until(
            "worker_nodes.default.size", 3, lambda: cluster.as_alice(f"until {ON_THREE}; do sleep 0.1; done")
        )
        cluster.change("worker_nodes.default.size", 2)
        cluster.await_idle(*WORKERS)
        return taken

    bench.measure(_of("size 2 -> 3 -> a job runs on the new node", cluster), once, runs=5, goal=4)


def engine(bench: Bench, cluster: Cluster) -> None:
    """What an apply takes with Pulumi's own engine."""
    unchanged(bench, cluster)
    setting(bench, cluster)
    scaling(bench, cluster)


def _of(name: str, cluster: Cluster) -> str:
    return name if cluster.engine == "kubectl" else f"{name}, {cluster.engine} engine"
