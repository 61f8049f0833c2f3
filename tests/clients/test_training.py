"""Launchers of parallel Python, on two nodes without GPUs."""

from __future__ import annotations

import pytest

from tests.clients.all_reduce import ALL_REDUCE, SUM
from tests.clients.conftest import NODES, Alice

TORCHRUN = """
#SBATCH --nodes=2 --ntasks-per-node=1 --cpus-per-task=2
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)
address=$(srun --nodes=1 --ntasks=1 -w "$head" hostname --ip-address)
srun torchrun --nnodes 2 --nproc_per_node 2 --rdzv_id "$SLURM_JOB_ID" --rdzv_backend c10d \\
    --rdzv_endpoint "$address:29500" train.py
"""
"""One launcher on each node, which meet at the first."""


@pytest.fixture(autouse=True, scope="module")
def script(alice: Alice) -> None:
    alice.write("train.py", ALL_REDUCE)


def test_torchrun(alice: Alice) -> None:
    told = alice.batch(TORCHRUN)
    assert SUM in told


RAY = """
#SBATCH --nodes=2 --ntasks-per-node=1 --cpus-per-task=2
. ~/ray/bin/activate
export RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=300   # of seconds; 30 are few where two nodes share a core
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)
srun --nodes=2 --ntasks=2 ray symmetric-run --address "$head:6379" --min-nodes "$SLURM_JOB_NUM_NODES" \\
    --num-cpus="$SLURM_CPUS_PER_TASK" -- python -u squares.py
"""
"""One command on each node, of which the first becomes the head: Ray's way for Slurm."""

SQUARES = """
import ray, socket
ray.init()

@ray.remote(num_cpus=2)
class Worker:
    def square(self, number):
        return socket.gethostname(), number * number

workers = [Worker.remote(), Worker.remote()]
told = ray.get([worker.square.remote(number) for number, worker in enumerate(workers, 4)])
print("Ray", ray.__version__, *sorted(host for host, _ in told), *sorted(square for _, square in told))
"""
"""Two actors, each of which takes a whole node."""


def test_ray(alice: Alice) -> None:
    alice.write("squares.py", SQUARES)
    assert f"Ray 2.60.0 {NODES[0]} {NODES[1]} 16 25" in alice.batch(RAY)


def test_torchx(alice: Alice) -> None:
    """It asks for a heterogeneous job of one part for each node, and follows it in sacct."""
    run = (
        "torchx run --wait -s slurm -cfg partition=main,time=10 dist.ddp -j 2x2 --cpu 2 --memMB 1024 --script train.py"
    )
    told = alice.run(f". ~/torchx/bin/activate; torchx --version; {run}")
    assert "torchx-0.7.0" in told
    assert "SUCCEEDED" in told, told
    job = told.split("slurm://torchx/")[1].split()[0]
    shown = alice.run(f"cat slurm-{job}-train-*.out")
    assert SUM in shown
