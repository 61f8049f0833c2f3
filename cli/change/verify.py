"""The proof that a cluster works: a job on its nodes, as an ordinary user, in the jail."""

from __future__ import annotations

import time

import typer

from cli.errors import Failure
from cli.kubectl.client import Kubectl, in_controller
from cli.kubectl.pods import in_jail
from cli.stack import Stack
from cli.text import printable
from local.report import Report
from slurm.names import LOGIN

NODES = 2
"""Nodes that the job asks for, where the cluster has as many."""


def verify(kubectl: Kubectl, stack: Stack, report: Report, *, timeout: float) -> None:
    """Run `srun hostname` on two nodes as the stack's first user, and print what to do next.

    Raises Failure if the job does not print one name for each node.
    """
    users = stack.config.users
    size = sum(pool.most for pool in stack.config.worker_nodes.values())
    if not users or not size or not stack.config.login.size:
        raise Failure("the stack needs a user, a login node and a worker for this", hint="leave out --verify")
    user, count = next(iter(users)), min(NODES, size)
    namespace = stack.config.cluster.namespace
    # Slurm starts others for the job.
    there = min(count, sum(pool.least for pool in stack.config.worker_nodes.values()))
    with report.step(f"Waiting for {there} idle nodes") as step:
        deadline = time.monotonic() + timeout
        while (ready := len(usable(kubectl, namespace))) < there:
            step.progress(ready, there, "nodes")
            if time.monotonic() > deadline:
                raise Failure(f"only {ready} of {there} nodes are usable", hint="`slurmstack status` shows why")
            time.sleep(0.2)
    typer.echo(f"{user}@login:~$ srun -N{count} hostname")
    printed = as_user(kubectl, stack, user, f"srun -N{count} hostname")
    names = printed.split()
    typer.echo(printed.rstrip())
    if len(set(names)) != count:
        raise Failure(f"srun -N{count} printed {len(set(names))} node names instead of {count}")
    typer.echo(
        f"""
The cluster works. Try next:
  .venv/bin/slurmstack {"login " + user:24}a shell on a login node, in the jail
  .venv/bin/slurmstack status                  pods, nodes, addresses
  change `size` in {stack.file.name}, then
  .venv/bin/slurmstack up                      scale it; `preview` shows what would change
  make down                                    remove everything"""
    )


def as_user(kubectl: Kubectl, stack: Stack, user: str, command: str) -> str:
    """What a command prints that runs as this user in the jail of a login node, fit to be shown.

    The user's own profile may print something before. Raises Failure if it fails.
    """
    account = stack.config.users[user]
    gid = account.uid if account.gid is None else account.gid
    words = ("/usr/bin/env", "-i", f"HOME=/home/{user}", f"USER={user}", "/bin/bash", "-lc", f"cd && {command}")
    where = ("exec", "-n", stack.config.cluster.namespace, f"service/{LOGIN}", "-c", "sshd", "--")
    done = kubectl.run(*where, *in_jail(account.uid, gid, *words), check=False)
    if done.returncode != 0:
        raise Failure(f"{command!r} failed as {user}: {(done.stderr or done.stdout).strip()}")
    return "\n".join(map(printable, done.stdout.split("\n")))


def usable(kubectl: Kubectl, namespace: str) -> set[str]:
    """Usable nodes whose slurmd has registered from the pod that runs now.

    After all of a cluster was started again, slurmctld shows nodes as it has saved them, idle at addresses that other
    pods may have by then; a job that starts before their slurmd comes back is lost.
    """
    nodes = ("sinfo", "--Node", "--noheader", "--states=idle,mixed,allocated", "--Format=NodeList:|,NodeAddr:|")
    done = in_controller(kubectl, namespace, *nodes)
    addresses = dict(line.split("|")[:2] for line in done.stdout.splitlines() if line.count("|") >= 2)
    pods = kubectl.items("pod", "-n", namespace, "-l", "slurmstack/pool")
    current = {pod["metadata"]["name"]: pod.get("status", {}).get("podIPs", []) for pod in pods}
    return {name for name, address in addresses.items() if address in {item["ip"] for item in current.get(name, [])}}
