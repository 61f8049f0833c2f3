"""Everything that is to know about a stack on Nebius before `up`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from rich.console import Console

from cli.access.nebius_sdk import close_sdk, open_sdk
from cli.doctor.cloud.amounts import check_capacity, check_quotas
from cli.doctor.cloud.ask import Answers, Unanswered, ask
from cli.doctor.cloud.place import check_present, check_project, missing
from cli.doctor.cloud.report import Finding, change
from config.cluster import ClusterConfig
from config.nebius.needs import needs
from config.sections.cloud import NebiusCloud

LIMIT = 30.0
"""Seconds for all answers together."""


def diagnose(config: ClusterConfig, cloud: NebiusCloud, *, limit: float = LIMIT) -> list[Finding]:
    """Ask the cloud and compare. Raises Failure without usable credentials."""
    sdk = open_sdk()
    try:
        with Console(stderr=True, highlight=False).status("Asking the cloud"):
            answers = asyncio.run(ask(sdk, cloud, cloud.prefix(config.cluster.namespace), seconds=limit))
    finally:
        close_sdk(sdk)
    if isinstance(answers, Unanswered):
        return [change("project", f"{cloud.project_id} cannot be read: {answers.reason}")]
    return list(findings(answers, config, cloud))


def findings(answers: Answers, config: ClusterConfig, cloud: NebiusCloud) -> Iterator[Finding]:
    """What follows from the answers, in the order in which one would put it right."""
    wanted = needs(config)
    lack = missing(wanted, answers, cloud.prefix(config.cluster.namespace))
    yield check_project(answers.project, cloud)
    yield check_present(answers, lack, wanted)
    yield from check_quotas(answers, lack, wanted, config, cloud)
    yield from check_capacity(answers, lack.nodes, config, cloud.region)
