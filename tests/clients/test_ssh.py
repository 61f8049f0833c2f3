"""Programs that go by ssh to the nodes of a job: launchers, and an editor with its server there."""

from __future__ import annotations

from tests.clients.all_reduce import ALL_REDUCE, SUM
from tests.clients.conftest import NODES, Alice
from tests.openmpi import start_parallel
from tests.slurm.pod import wait_until

HOSTS = """
#SBATCH --nodes=2 --ntasks-per-node=2
for node in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do echo "$node slots=2"; done > hosts
"""

DEEPSPEED = f"""{HOSTS}
. ~/deepspeed/bin/activate
deepspeed --hostfile hosts train.py
"""
"""As its documentation says: pdsh, and so ssh, to the nodes of a list."""


def test_deepspeed(alice: Alice) -> None:
    alice.write("train.py", ALL_REDUCE)
    assert SUM in alice.batch(DEEPSPEED)


MPI_SUM = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
	int rank, sum, length;
	char host[MPI_MAX_PROCESSOR_NAME];
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	rank += 1;
	MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	MPI_Get_processor_name(host, &length);
	printf("sum %d on %s %s\n", sum, host, getenv("SLURM_JOB_ID") ? "from the script" : "by ssh");
	return MPI_Finalize();
}
"""

MPIRUN = "mpirun --mca plm ssh --hostfile hosts ./sum"


def test_open_mpi_by_ssh(alice: Alice) -> None:
    alice.write("sum.c", MPI_SUM)
    alice.run("mpicc sum.c -o sum")
    told = start_parallel(alice.batch, f"{HOSTS}{MPIRUN}")
    first, second = (f"sum 10 on {node} {how}" for node, how in zip(NODES, ("from the script", "by ssh"), strict=True))
    # On a loaded machine it also warns that ssh was faster than its own setpgid.
    assert sorted(line for line in told.splitlines() if line.startswith("sum")) == [first, first, second, second]


SSH_CONFIG = """
Host login-0 default-*
    User alice
    IdentityFile /root/key
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
    LogLevel ERROR
    BatchMode yes
Host default-*
    ProxyJump login-0
"""
"""Of the user's own machine."""

NOTED = """
echo draft > /tmp/notes
until grep --quiet final /tmp/notes; do sleep 0.2; done
cp /tmp/notes ~/seen
sleep 1000
"""
"""A job that sees what becomes of a file in its own /tmp."""

SERVER = """
nohup nvim --clean --headless --listen 127.0.0.1:7777 >/tmp/nvim.log 2>&1 </dev/null &
until nvim --server 127.0.0.1:7777 --remote-expr 1 >/dev/null 2>&1; do sleep 0.2; done
echo listens on $(hostname)
"""
"""It outlives the session that starts it, as those of other editors do."""

EDIT = "execute('edit /tmp/notes | %s/draft/final/ | write')"


def test_an_editor_s_server_serves_the_user_s_own_machine_until_the_job_ends(alice: Alice) -> None:
    client, worker = alice.cluster.pods["client"], alice.cluster.pods["default-1"]
    (client.root / "root/.ssh").mkdir(mode=0o700, exist_ok=True)
    (client.root / "root/.ssh/config").write_text(SSH_CONFIG)
    alice.write("noted.sh", f"#!/bin/bash{NOTED}")
    job = alice.run("rm -f seen; sbatch --parsable --nodelist=default-1 --output=/dev/null noted.sh").strip()
    alice.cluster.wait_for_job(job, "RUNNING")
    wait_until(lambda: "draft" in client.run("ssh default-1 cat /tmp/notes").stdout, alice.cluster.logs)

    started = client.run("ssh -T default-1 bash", stdin=SERVER)
    assert started.stdout == "listens on default-1\n", started.stderr
    forward = "ssh -f -N -o ExitOnForwardFailure=yes -L 7777:localhost:7777 default-1"
    assert client.run(f"{forward} >/dev/null 2>&1").returncode == 0
    edited = client.run(["chroot", "/jail", "nvim", "--server", "127.0.0.1:7777", "--remote-expr", EDIT])
    assert edited.returncode == 0, edited.stderr
    wait_until(lambda: "final" in alice.run("cat seen || true"), alice.cluster.logs)

    assert worker.run(["pgrep", "nvim"]).stdout
    alice.run(f"scancel {job}")
    wait_until(lambda: not client.run(["pgrep", "--full", "ssh -f -N"]).stdout, alice.cluster.logs)
    assert not worker.run(["pgrep", "nvim"]).stdout
