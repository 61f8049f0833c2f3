"""Everything that is to know about a stack on Nebius before `up`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from threading import Thread

from nebius.sdk import SDK
from rich.console import Console

from cli.access.nebius_sdk import close_sdk, open_sdk
from cli.doctor.cloud.amounts import check_capacity, check_quotas, check_reservations, reserved_gpus
from cli.doctor.cloud.ask import Answer, Answers, Unanswered, ask, listed
from cli.doctor.cloud.place import check_machines, check_present, check_project, check_subnet, missing
from cli.doctor.cloud.report import Finding, change
from config.cluster import ClusterConfig
from config.nebius.needs import needs
from config.sections.cloud import NebiusCloud


def diagnose(
    config: ClusterConfig,
    cloud: NebiusCloud,
    *,
    limit: float,
    credentials: Path | None = None,
    profile: str | None = None,
) -> list[Finding]:
    """Ask the cloud and compare. Ctrl-C ends it at once. Raises Failure without usable credentials."""
    sdk = open_sdk(credentials=credentials, profile=profile)
    try:
        with Console(stderr=True, highlight=False).status("Asking the cloud"):
            answers = _ask_aside(sdk, cloud, cloud.prefix(config.cluster.namespace), limit)
    except Exception:
        close_sdk(sdk)
        raise
    close_sdk(sdk)
    if isinstance(answers, Unanswered):
        return [change("project", f"{cloud.project_id} cannot be read: {answers.reason}")]
    return list(findings(answers, config, cloud))


def _ask_aside(sdk: SDK, cloud: NebiusCloud, cluster: str, seconds: float) -> Answer[Answers]:
    """The answers, or KeyboardInterrupt at once.

    In a thread of its own: asyncio answers Ctrl-C by cancelling what waits, and a call that does not let itself be
    cancelled just then kept the command until its time limit (seen under load). The process ends without that thread.
    """
    done: Future[Answer[Answers]] = Future()

    def work() -> None:
        try:
            done.set_result(asyncio.run(ask(sdk, cloud, cluster, seconds=seconds)))
        except Exception as error:  # noqa: BLE001  raised again where it is waited for
            done.set_exception(error)

    Thread(target=work, name="questions", daemon=True).start()
    return done.result()


def findings(answers: Answers, config: ClusterConfig, cloud: NebiusCloud) -> Iterator[Finding]:
    """What follows from the answers, in the order in which one would put it right."""
    wanted = needs(config)
    lack = missing(wanted, answers, cloud.prefix(config.cluster.namespace))
    reserved = reserved_gpus(lack.needs, config, cloud, listed(answers.blocks))
    yield check_project(answers.project, cloud)
    yield check_present(answers, lack, wanted)
    yield check_subnet(answers, cloud, lack)
    yield from check_machines(answers.platforms, config, wanted)
    yield from check_quotas(answers, lack, config, cloud, reserved)
    yield from check_reservations(answers, lack.needs, config, cloud, reserved)
    yield from check_capacity(answers, lack.needs, config, cloud.region)
