"""exporter: answers Prometheus on port 9341, path /metrics, from rounds that it makes every half minute.

A scrape starts none, however many ask: slurmctld has the same few questions to answer in any case. By /targets
Prometheus finds the workers of elastic pools that are up.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, NoReturn

from images.common.http_server import PROMETHEUS, Answer, start_server
from images.common.log import Log
from images.common.process import program
from images.exporter.rounds import INTERVAL_SECONDS, Rounds, Wanted
from images.exporter.sources import Sources

PORT: Final = 9341
JOB_METRICS_PORT: Final = 9306
"""Of workers (slurm/names.py)."""


def _wanted(env: Mapping[str, str]) -> Wanted:
    """What components/exporter.py asks for. `CERTIFICATES`: `rest=/secrets/rest/tls.crt`, divided by blanks."""
    certificates = (entry.partition("=") for entry in env.get("CERTIFICATES", "").split())
    return Wanted(
        slurms_own=env.get("SLURMS_OWN") == "yes",
        by_person=env.get("BY_PERSON") == "yes",
        accounting=env.get("ACCOUNTING") == "yes",
        certificates={name: path for name, _, path in certificates},
    )


def _answer(rounds: Rounds, path: str) -> Answer:
    if path == "/metrics":
        return Answer(PROMETHEUS, rounds.text())
    if path == "/targets":
        targets = [f"{name}:{JOB_METRICS_PORT}" for name in rounds.elastic]
        return Answer("application/json", json.dumps([{"targets": targets}]))
    if path == "/healthz":
        return Answer("text/plain", "ok\n")
    return Answer("text/plain", "known: /metrics /targets /healthz\n", HTTPStatus.NOT_FOUND)


def _serve(log: Log) -> NoReturn:
    sources = Sources(agent_url=os.environ.get("AGENT_URL", Sources.agent_url))
    rounds = Rounds(_wanted(os.environ), sources, log)
    start_server(lambda path: _answer(rounds, path), PORT)
    interval = float(os.environ.get("INTERVAL_SECONDS", INTERVAL_SECONDS))
    while True:
        begun = time.monotonic()
        rounds.round()
        time.sleep(max(interval - (time.monotonic() - begun), 1.0))


def main() -> None:
    """Entry point."""
    with program("exporter") as log:
        _serve(log)
