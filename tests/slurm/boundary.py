"""A cluster of users who are not trusted (test_boundary.py)."""

from __future__ import annotations

import json
from pathlib import Path

from config import load_config
from tests import stacks
from tests.slurm.cluster import ClusterFactory
from tests.slurm.login import ssh_to, write_host_key, write_user_key
from tests.slurm.minimal import TOKENS, lines_of, minimal_config
from tests.slurm.pod import LIBEXEC, wait_until
from tests.slurm.sandbox import SlurmSandbox

PLUGSTACK = "required /usr/lib/slurmstack/jail.so root=/jail\n"
UIDS = {"alice": 25201, "bob": 25202}
USERS = {
    "passwd": "".join(f"{name}:x:{uid}:{uid}::/home/{name}:/bin/bash\n" for name, uid in UIDS.items()),
    "group": "".join(f"{name}:x:{uid}:\n" for name, uid in UIDS.items()),
}


def boundary_cluster(slurm_cluster: ClusterFactory, slurm_version: str, secret: Path) -> SlurmSandbox:
    """A worker and a login node with their real capabilities. Alice has sudo, bob has not.

    `secret`: a directory for the login node's host key.
    """
    write_host_key(secret)
    stack = load_config(stacks.dev())
    bounds = ("SlurmctldParameters", "SlurmdParameters", "DisableRootJobs", "PropagateResourceLimits")
    extra = lines_of(stack, *TOKENS, "Prolog", "Epilog", *bounds)
    config = minimal_config(slurm_version, extra, **{"plugstack.conf": PLUGSTACK}, **USERS)
    sandbox = slurm_cluster(slurm_version, config=config, workers=1, jail=True)
    client = sandbox.add_pod("client", "jail", {sandbox.jail: "/jail"}, munged=False)
    public = write_user_key(client.root / "root/key")
    users = {
        name: {"uid": uid, "gid": uid, "ssh_authorized_keys": [public], "sudo": name == "alice"}
        for name, uid in UIDS.items()
    }
    (client.root / "config/slurm/users.json").write_text(json.dumps({"users": users}))
    done = client.run([f"{LIBEXEC}/users", "/config/slurm/users.json"])
    assert done.returncode == 0, done.stdout + done.stderr
    login = sandbox.add_pod("login-0", "login", {sandbox.jail: "/jail", secret: "/secrets/ssh"})
    login.start_program("sackd", {"CONTROLLER": "controller-0:6817"})
    login.start_program("sshd", {"JAIL": "/jail"})
    wait_until(lambda: ssh_to(sandbox, "alice", "true")[0] == 0, sandbox.logs)
    return sandbox


def shell(cluster: SlurmSandbox, user: str, command: str) -> str:
    """What a command prints that a user runs on the login node, in the jail."""
    (cluster.jail / f"home/{user}/.command").write_text(command)
    code, out = ssh_to(cluster, user, "bash .command")
    assert code == 0, f"{command}: {out}\n{cluster.logs()}"
    return out
