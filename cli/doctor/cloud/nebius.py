"""Everything that is to know about a stack on Nebius before `up`."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

from nebius.sdk import SDK
from rich.console import Console

from cli.access.nebius_sdk import close_sdk, open_sdk
from cli.doctor.cloud.answers import Answers, LiveGpuCluster, LivePlatform, Present, Unanswered
from cli.doctor.cloud.ask import Cloud
from cli.doctor.cloud.capacity import check_capacity, check_fabrics, check_reservations, demands, reserved_gpus
from cli.doctor.cloud.interview import Interview, Tell
from cli.doctor.cloud.machines import check_filesystems, check_gpu_clusters, check_platforms
from cli.doctor.cloud.network import check_subnet
from cli.doctor.cloud.present import Missing, missing
from cli.doctor.cloud.project import check_credentials, check_drivers, check_kubernetes, check_project
from cli.doctor.cloud.quotas import check_quotas, wanted_quotas
from cli.doctor.cloud.report import Finding, fine, unchecked
from config.cluster import ClusterConfig
from config.nebius.cloud import NebiusCloud
from config.nebius.needs import Needs, needs


def diagnose(
    config: ClusterConfig,
    settings: NebiusCloud,
    *,
    limit: float,
    credentials: Path | None = None,
    profile: str | None = None,
) -> list[Finding]:
    """Ask the cloud and compare. Ctrl-C ends it at once. Raises Failure without usable credentials."""
    wanted = needs(config)
    sdk = open_sdk(credentials=credentials, profile=profile)
    try:
        with _progress() as tell:
            answers = _run_aside(_interview(sdk, config, settings, wanted, limit=limit, tell=tell))
    except Exception:
        close_sdk(sdk)
        raise
    close_sdk(sdk)
    return list(findings(answers, config, settings, wanted))


def _run_aside(interview: Coroutine[Any, Any, Answers]) -> Answers:
    """The answers, or KeyboardInterrupt at once.

    In a thread of its own: asyncio answers Ctrl-C by cancelling what waits, and a call that does not let itself be
    cancelled just then kept the command until its time limit (seen under load). The process ends without that thread.
    """
    done: Future[Answers] = Future()

    def work() -> None:
        try:
            done.set_result(asyncio.run(interview))
        except Exception as error:  # noqa: BLE001  raised again where it is waited for
            done.set_exception(error)

    Thread(target=work, name="interview", daemon=True).start()
    return done.result()


def findings(answers: Answers, config: ClusterConfig, settings: NebiusCloud, wanted: Needs) -> Iterator[Finding]:
    """What follows from the answers, in the order in which one would put it right."""
    there = Present() if isinstance(answers.present, Unanswered) else answers.present
    lack = missing(wanted, there, settings.prefix(config.cluster.namespace))
    blocks = () if isinstance(answers.blocks, Unanswered) else answers.blocks
    platforms: Mapping[str, LivePlatform] = {} if isinstance(answers.platforms, Unanswered) else answers.platforms
    reserved = reserved_gpus(lack.needs, config, settings, blocks)
    quotas = wanted_quotas(lack, config, settings, platforms, reserved)
    fabrics = {name: found.fabric for name, found in answers.gpu_clusters.items() if isinstance(found, LiveGpuCluster)}
    yield check_credentials(answers.identity)
    yield check_project(answers.project, settings)
    yield _check_present(answers, lack, wanted)
    yield check_kubernetes(answers.versions, settings)
    yield check_subnet(answers, settings, lack)
    yield from check_platforms(answers.platforms, config, wanted)
    yield from check_drivers(answers, config, settings)
    yield from check_gpu_clusters(answers, wanted, settings)
    yield from check_fabrics(answers, wanted, settings)
    yield from check_quotas(answers, quotas, settings.region)
    yield from check_reservations(answers, lack.needs, config, settings)
    yield from check_capacity(answers, demands(lack.needs, config, fabrics), settings.region)
    yield from check_filesystems(answers, wanted, settings)


def _check_present(answers: Answers, lack: Missing, wanted: Needs) -> Finding:
    if isinstance(answers.present, Unanswered):
        subject = "what is there already (everything counts as still to be made)"
        return unchecked("present", subject, answers.present)
    if not answers.present.cluster:
        return fine("present", f"nothing yet: {wanted.machines} machines to be made")
    return fine("present", f"the cluster; {lack.needs.machines} of {wanted.machines} machines are still to be made")


async def _interview(
    sdk: SDK, config: ClusterConfig, settings: NebiusCloud, wanted: Needs, *, limit: float, tell: Tell
) -> Answers:
    return await Interview(Cloud(sdk), limit=limit, tell=tell).run(config, settings, wanted)


@contextmanager
def _progress() -> Iterator[Tell]:
    """A live line on a terminal, on standard error; nothing elsewhere."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield lambda _done, _total: None
        return
    with console.status("Asking the cloud") as status:
        yield lambda done, total: status.update(f"Asking the cloud [dim]{done} of {total}[/]")
