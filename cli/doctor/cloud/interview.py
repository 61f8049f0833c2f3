"""All questions about one stack, put at the same time, within one limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from cli.doctor.cloud.answers import Answer, Answers, Identity, Project, Unanswered
from cli.doctor.cloud.ask import Cloud
from cli.doctor.cloud.project import wanted_drivers
from config.cluster import ClusterConfig
from config.nebius.cloud import NebiusCloud
from config.nebius.needs import Needs

T = TypeVar("T")

Question = Callable[[], Awaitable[Answer[T]]]

Tell = Callable[[int, int], None]
"""Called with how many questions are answered and how many there are so far."""


class Interview:
    """Puts the questions about a stack and waits for the answers."""

    def __init__(self, cloud: Cloud, *, limit: float, tell: Tell) -> None:
        self._cloud = cloud
        self._limit = limit
        self._tell = tell
        self._deadline = 0.0
        self._asked = 0
        self._answered = 0

    async def run(self, config: ClusterConfig, settings: NebiusCloud, needs: Needs) -> Answers:
        """Every answer that comes before the limit. If the credentials are refused, nothing more is asked."""
        self._deadline = asyncio.get_running_loop().time() + self._limit
        cloud, project_id, version = self._cloud, settings.project_id, settings.kubernetes.version
        identity, project = await asyncio.gather(
            self._ask(cloud.identity), self._ask(partial(cloud.project, project_id))
        )
        refused, tenantless = _not_to_ask(identity, project)
        tenant = "" if isinstance(project, Unanswered) else project.tenant
        subnet = settings.subnet_id or ""
        subnetless = refused if subnet else Unanswered(reason="the stack file names no subnet")
        existing = [item.existing_id for item in needs.filesystems if item.existing_id]
        async with asyncio.TaskGroup() as group:

            def ask(question: Question[T], skip: Unanswered | None = refused) -> asyncio.Task[Answer[T]]:
                return group.create_task(self._ask(question, skip))

            present = ask(partial(cloud.present, project_id, settings.prefix(config.cluster.namespace)))
            versions = ask(cloud.versions)
            platforms = ask(partial(cloud.platforms, project_id))
            subnet_answer = ask(partial(cloud.subnet, subnet), subnetless)
            taken = ask(partial(cloud.taken, subnet), subnetless)
            tenant_quotas = ask(partial(cloud.quotas, tenant), tenantless)
            project_quotas = ask(partial(cloud.quotas, project_id))
            blocks = ask(partial(cloud.blocks, tenant), tenantless)
            advice = ask(partial(cloud.advice, tenant), tenantless)
            images = {name: ask(partial(cloud.images, version, name)) for name in wanted_drivers(config, settings)}
            filesystems = {name: ask(partial(cloud.filesystem, name)) for name in existing}
            gpu_clusters = {name: ask(partial(cloud.gpu_cluster, name)) for name in needs.gpu_clusters}
        return Answers(
            identity=identity,
            project=project,
            present=present.result(),
            versions=versions.result(),
            platforms=platforms.result(),
            images={name: task.result() for name, task in images.items()},
            subnet=subnet_answer.result(),
            taken=taken.result(),
            tenant_quotas=tenant_quotas.result(),
            project_quotas=project_quotas.result(),
            blocks=blocks.result(),
            advice=advice.result(),
            filesystems={name: task.result() for name, task in filesystems.items()},
            gpu_clusters={name: task.result() for name, task in gpu_clusters.items()},
        )

    async def _ask(self, question: Question[T], skip: Unanswered | None = None) -> Answer[T]:
        """One answer, or that it did not come before the limit. With `skip`, nothing is asked."""
        if skip is not None:
            return skip
        self._asked += 1
        self._tell(self._answered, self._asked)
        try:
            async with asyncio.timeout_at(self._deadline):
                return await question()
        except TimeoutError:
            return Unanswered(reason=f"no answer within {self._limit:g} s in all", code="DEADLINE_EXCEEDED")
        finally:
            self._answered += 1
            self._tell(self._answered, self._asked)


def _not_to_ask(identity: Answer[Identity], project: Answer[Project]) -> tuple[Unanswered | None, Unanswered | None]:
    """Why nothing more, and why nothing of the tenant should be asked. None: it should."""
    if isinstance(identity, Unanswered) and identity.refused:
        refused = Unanswered(reason="not asked, since the credentials were refused")
        return refused, refused
    if isinstance(project, Unanswered):
        return None, Unanswered(reason=f"the tenant is not known, since the project is not: {project.reason}")
    return None, None
