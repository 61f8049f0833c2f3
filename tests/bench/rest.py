"""Submissions through the REST API."""

from __future__ import annotations

import base64

from tests.bench.cluster import Cluster
from tests.bench.figures import Bench

SUBMISSIONS = 100
"""Jobs that are submitted through the REST API."""

CONNECTIONS = 16

REST_CLIENT = """
import http.client, json, os, ssl, sys, threading, time
number, connections = map(int, sys.argv[1:])
context = ssl.create_default_context(cafile="ca.pem")
headers = {"X-SLURM-USER-TOKEN": os.environ["SLURM_JWT"], "Content-Type": "application/json"}
job = {"current_working_directory": "/tmp", "environment": ["PATH=/bin"], "standard_output": "/dev/null"}
body = json.dumps({"script": "#!/bin/sh\\ntrue\\n", "job": job})
def submit(count):
    connection = http.client.HTTPSConnection("rest", 6820, context=context)
    for _ in range(count):
        connection.request("POST", "/slurm/v0.0.42/job/submit", body, headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            os.write(2, text)
            os._exit(1)
started = time.monotonic()
counts = [number // connections + (index < number % connections) for index in range(connections)]
threads = [threading.Thread(target=submit, args=(count,)) for count in counts]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(time.monotonic() - started)
"""
"""What a user's script would do: connections that stay open, one request after the other on each."""


def rest(bench: Bench, cluster: Cluster) -> None:
    """Many jobs with one token, over connections that are open side by side."""
    cluster.change("rest", {"enabled": True})
    (secret,) = cluster.kubectl.items("secret", "rest-tls", "-n", cluster.namespace)
    authority = base64.b64decode(secret["data"]["ca.crt"]).decode()

    def once(_: int) -> float:
        command = f"export \"$(scontrol token)\"; python3 - {SUBMISSIONS} {CONNECTIONS} <<'END'\n{REST_CLIENT}\nEND"
        taken = float(cluster.as_alice(f"cat > ca.pem <<'END'\n{authority}\nEND\n{command}"))
        cluster.await_empty_queue()
        return taken

    name = f"{SUBMISSIONS} submissions through REST with one token, {CONNECTIONS} connections"
    row = bench.measure(name, once, runs=5, goal=SUBMISSIONS / 50)
    row.note = f"{SUBMISSIONS / row.median:.0f} a second"
