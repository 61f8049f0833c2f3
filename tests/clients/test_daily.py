"""What researchers use beside their jobs: notebooks, modules, containers, workflows."""

from __future__ import annotations

import re

from tests.clients.conftest import NODES, Alice
from tests.slurm.login import OPTIONS
from tests.slurm.pod import wait_until

JUPYTER = """#!/bin/bash
#SBATCH --nodelist=default-1 --output=jupyter.out
. ~/jupyter/bin/activate
exec jupyter server --no-browser --ip=0.0.0.0 --port=8888 --IdentityProvider.token=secret
"""

TUNNEL = "-f -N -o ExitOnForwardFailure=yes -L 8888:default-1:8888"
"""Of ssh, as docs/first-jobs.md has it."""

TALK = """
import json, sys, urllib.error, urllib.request, websocket
def ask(path, token, data=None):
    request = urllib.request.Request("http://localhost:8888/api" + path, data, {"Authorization": "token " + token})
    return json.load(urllib.request.urlopen(request))
version = ask("", "secret")["version"]
try:
    ask("/kernels", "guessed")
except urllib.error.HTTPError as error:
    refused = error.code
kernel = ask("/kernels", "secret", b"")["id"]
there = websocket.create_connection(f"ws://localhost:8888/api/kernels/{kernel}/channels?token=secret", timeout=120)
header = {"msg_id": "1", "session": "1", "username": "alice", "msg_type": "execute_request", "version": "5.3"}
content = {"code": "import os; print('job', os.environ['SLURM_JOB_ID'], 'on', os.uname().nodename)", "silent": False}
there.send(json.dumps({"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}))
while (message := json.loads(there.recv()))["msg_type"] != "stream":
    pass
print(version, refused, message["content"]["text"])
"""
"""Starts a kernel and runs a line in it, as the page of a notebook does."""


def test_jupyter_by_a_tunnel(alice: Alice) -> None:
    """A notebook on the user's own machine runs its code in the job; without the token nobody gets in."""
    client = alice.cluster.pods["client"]
    alice.write("jupyter.sh", JUPYTER)
    job = alice.run("sbatch --parsable jupyter.sh").strip()
    assert client.run(f"ssh {OPTIONS} {TUNNEL} alice@login-0 >/dev/null 2>&1").returncode == 0
    libraries = {"PYTHONPATH": "/jail/home/alice/jupyter/lib/python3.13/site-packages"}
    told: list[str] = []

    def answered() -> bool:
        done = client.run(["python3", "-c", TALK], env=libraries)
        told[:] = [done.stdout.strip(), done.stderr]
        return done.returncode == 0

    wait_until(answered, lambda: told[1] + alice.run("cat jupyter.out"))
    assert told[0] == f"2.21.1 403 job {job} on default-1"
    alice.run(f"scancel {job}")


MODULE = """#%Module
prepend-path PATH $env(HOME)/tools/1.0
setenv TOOL_VERSION 1.0
"""


def test_environment_modules(alice: Alice) -> None:
    """Debian's: loaded before a job, and within it."""
    alice.run("mkdir -p tools/1.0 modulefiles/tool")
    alice.write("tools/1.0/tool", '#!/bin/sh\necho "tool $TOOL_VERSION on $SLURMD_NODENAME"\n')
    alice.write("modulefiles/tool/1.0", MODULE)
    load = "module use ~/modulefiles; module load tool"
    alice.run(f"chmod 755 tools/1.0/tool; bash -lc '{load}; module list' 2>&1 | grep tool/1.0")
    wanted = [f"tool 1.0 on {node}" for node in NODES]
    assert sorted(alice.run(f"bash -lc '{load}; srun -Q -N2 tool'").splitlines()) == wanted
    script = f". /etc/profile.d/modules.sh\n{load}\nsrun -Q -N2 tool\nmodule unload tool\ncommand -v tool || echo gone"
    assert sorted(alice.batch(f"#SBATCH -N2\n{script}").splitlines()) == ["gone", *wanted]


WORKFLOW = r"""
process square {
    input: val number
    output: stdout
    script: "printf '%s of %s' \$(($number * $number)) \$SLURM_JOB_ID"
}
workflow { Channel.of(7, 8, 9) | square | view }
"""

NEXTFLOW = """#!/bin/sh
opens=$(printf -- '--add-opens=java.base/%s=ALL-UNNAMED ' java.lang java.io java.nio java.net java.util sun.nio.ch)
export NXF_OFFLINE=true
exec java $opens -cp "$HOME/nextflow/jars/*" nextflow.cli.Launcher "$@"
"""
"""As its own launcher starts it, which would fetch the same jars."""


def test_nextflow(alice: Alice) -> None:
    alice.write("nextflow.sh", NEXTFLOW)
    alice.write("nextflow.config", "process { executor = 'slurm'; memory = '200 MB'; time = '5m' }\n")
    alice.write("squares.nf", WORKFLOW)
    told = alice.run("sh nextflow.sh -q -version; sh nextflow.sh run squares.nf -ansi-log false")
    assert "24.10.0" in told
    squares = dict(re.findall(r"^(\d+) of (\d+)$", told, re.MULTILINE))
    assert squares.keys() == {"49", "64", "81"}, told
    ended = alice.run(f"sacct -X -n -P -o JobName,State -j {','.join(squares.values())}")
    assert sorted(ended.splitlines()) == [f"nf-square_({number})|COMPLETED" for number in (1, 2, 3)]
