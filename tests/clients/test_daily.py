"""What researchers use beside their jobs: notebooks, modules, containers, workflows."""

from __future__ import annotations

import json
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

ASK = """
import json, sys, urllib.request
method, path, token = sys.argv[1:]
request = urllib.request.Request(f"http://localhost:8888/api{path}", None if method == "GET" else b"", method=method)
request.add_header("Authorization", f"token {token}")
print(urllib.request.urlopen(request).read().decode())
"""


def test_jupyter_by_a_tunnel(alice: Alice) -> None:
    """A page of a job reaches the user's own machine, and a kernel runs on the job's node; for others it is closed."""
    client = alice.cluster.pods["client"]

    def ask(method: str, path: str, token: str = "secret") -> str:
        return client.run(["python3", "-c", ASK, method, path, token]).stdout

    alice.write("jupyter.sh", JUPYTER)
    job = alice.run("sbatch --parsable jupyter.sh").strip()
    client.run(f"ssh {OPTIONS} {TUNNEL} alice@login-0")
    wait_until(lambda: ask("GET", "") != "", lambda: alice.run("cat jupyter.out"))
    assert json.loads(ask("GET", ""))["version"] == "2.21.1"
    assert ask("GET", "/kernels", "guessed") == ""
    kernel = json.loads(ask("POST", "/kernels"))["id"]
    state = f"/kernels/{kernel}"
    wait_until(lambda: json.loads(ask("GET", state))["execution_state"] == "idle", lambda: alice.run("cat jupyter.out"))
    assert "ipykernel" in alice.cluster.run("pgrep --full --list-full --uid alice ipykernel", pod="default-1").stdout
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


WORKFLOW = """
process square {
    input: val number
    output: stdout
    script: "printf '%s of %s' $((number * number)) $SLURM_JOB_ID"
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
    squares = dict(re.findall(r"^(\\d+) of (\\d+)$", told, re.MULTILINE))
    assert squares.keys() == {"49", "64", "81"}, told
    ended = alice.run(f"sacct -X -n -P -o JobName,State -j {','.join(squares.values())}")
    assert sorted(ended.splitlines()) == [f"nf-square_({number})|COMPLETED" for number in (1, 2, 3)]
