"""Users log in to the jail, and their jobs run in it."""

from __future__ import annotations

import textwrap

from tests.e2e.harness import SlurmOnKubernetes
from tests.openmpi import start_parallel

MPI_PROGRAM = r"""
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
  int rank, size, length, sum;
  char name[MPI_MAX_PROCESSOR_NAME];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Get_processor_name(name, &length);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  printf("rank %d of %d on %s, sum %d\n", rank, size, name, sum);
  MPI_Finalize();
  return 0;
}
"""


def test_every_login_node_takes_users_and_shows_the_one_host_key(two_nodes: SlurmOnKubernetes) -> None:
    pods = {name: pod for name, pod in two_nodes.pods().items() if name.startswith("login-")}
    assert set(pods) == {"login-0", "login-1"}
    for name, pod in pods.items():
        # The known_hosts file has the cluster's key alone, and ssh is told to be strict.
        assert two_nodes.ssh("hostname; id -un", at=pod["status"]["podIP"]).split() == [name, "alice"]


def test_a_package_installed_at_login_is_usable_in_a_job(two_nodes: SlurmOnKubernetes) -> None:
    two_nodes.ssh(
        "sudo apt-get -qq -o Acquire::Retries=3 update"
        " && sudo apt-get -qq -o Acquire::Retries=3 install --yes --no-install-recommends figlet >/dev/null 2>&1"
    )
    assert two_nodes.ssh("srun -N2 sh -c 'figlet -v | head -n1' | sort -u").count("FIGlet") == 1


def test_an_mpi_program_compiled_at_login_runs_over_two_nodes(two_nodes: SlurmOnKubernetes) -> None:
    source = textwrap.dedent(MPI_PROGRAM)
    two_nodes.ssh(f"cat > sum.c <<'END'\n{source}\nEND\nmpicc -o sum sum.c")
    shown = start_parallel(two_nodes.ssh, "srun -N2 --ntasks-per-node=2 --mpi=pmix ./sum")
    assert sorted(line.split(" on ")[0] for line in shown.splitlines()) == [f"rank {rank} of 4" for rank in range(4)]
    assert {line.split(" on ")[1].split(",")[0] for line in shown.splitlines()} == {"default-0", "default-1"}
    assert shown.count("sum 6") == 4
