"""Backups: the CronJob that saves the cluster, and what the commands make their Jobs from."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.accounting import Accounting
from components.controller import Controller
from components.jail import Jail
from components.kit import pods, volumes
from components.kit.context import Scope
from components.secrets import Secrets
from components.users import Users
from config.base import parse_bytes, span_seconds
from config.sections.cloud import Role
from config.sections.monitoring import Backup as BackupConfig
from slurm.names import BACKUP, BACKUPS, CONTROLLER, GENERATED, REHEARSE, RESTORE

KEYS_DIR = "/secrets/keys"
_SECRET = volumes.mount("repository", "/secrets/repository", read_only=True)

STAGE = "20Gi"
"""For a copy of slurmctld's files, without the jobs' scripts: 100,000 jobs have about 200 MB."""

_REHEARSED = "100Gi"
"""Of a machine's disk, for the database and slurmctld's files of a rehearsal."""

_MEMORY = "1Gi"
"""For its MariaDB, slurmdbd and slurmctld together; the first takes half of it for its pool."""

_LATE_SECONDS = 3600
"""A backup that could not be begun in its hour waits for the next time."""

_KEPT_SECONDS = 7 * 86_400
"""How long a Job that has ended can be looked at."""

_NEVER = "0 0 1 1 *"
"""Schedule of a suspended CronJob, which must have one."""


@dataclass(frozen=True, kw_only=True)
class BackupArgs:
    """Inputs of `Backup`."""

    scope: Scope
    backup: BackupConfig
    cluster_name: str
    """As Slurm has it."""
    secrets: Secrets
    controller: Controller
    jail: Jail
    users: Users
    accounting: Accounting | None


class Backup(pulumi.ComponentResource):
    """A CronJob that saves state, keys, database and jail, one after the other, in one pod.

    It runs where slurmctld does, whose volume only one machine may have. Three more, which never run by themselves, say
    how a Job that looks at backups (`backups`), puts one back (`restore`) or tries one (`rehearse`) has to be:
    `slurmstack` makes those.
    """

    def __init__(self, name: str, args: BackupArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:Backup", name, None, opts)
        self._child = pulumi.ResourceOptions(parent=self)
        self._name = name
        self._args = args
        accounting = args.accounting
        self._database = [*accounting.database_mounts, volumes.mount("run", "/run/slurmstack")] if accounting else []
        self._accounting_env = {"CLUSTER_NAME": args.cluster_name} if accounting else {}
        """To programs that have to do with accounting."""
        self._state = volumes.claim_volume("state", args.controller.claim.metadata.name)
        self.backup = self._create(BACKUP, self._saving(), "controller", scheduled=True)
        self.backups = self._create(BACKUPS, self._looking(), "system")
        self.restore = self._create(RESTORE, self._restoring(), "controller")
        self.rehearse = self._create(REHEARSE, self._rehearsing(), "system")
        self.register_outputs({})

    def _create(
        self, name: str, spec: k8s.core.v1.PodSpecArgs, role: Role, *, scheduled: bool = False
    ) -> k8s.batch.v1.CronJob:
        scope, backup = self._args.scope, self._args.backup
        spec.restart_policy = "Never"
        containers = [*(spec.init_containers or []), *spec.containers]  # type: ignore[misc]  # lists of ours
        for container in containers:
            container.termination_message_policy = "FallbackToLogsOnError"
        job = k8s.batch.v1.JobSpecArgs(
            backoff_limit=0,  # restic itself bears a store that is away for a quarter of an hour
            # Nobody waits for the end of a rehearsal whose command was killed.
            active_deadline_seconds=span_seconds(backup.time_limit) if name in {BACKUP, REHEARSE} else None,
            ttl_seconds_after_finished=_KEPT_SECONDS,
            template=pods.pod_template(scope, BACKUP, scope.cloud.placement(role), spec, stays=True),
        )
        labels = k8s.meta.v1.ObjectMetaArgs(labels=scope.labels(BACKUP))
        return k8s.batch.v1.CronJob(
            f"{self._name}-{name}",
            metadata=scope.metadata(name, BACKUP),
            spec=k8s.batch.v1.CronJobSpecArgs(
                schedule=backup.schedule if scheduled else _NEVER,
                time_zone="Etc/UTC",
                suspend=not scheduled,
                concurrency_policy="Forbid",
                starting_deadline_seconds=_LATE_SECONDS,
                successful_jobs_history_limit=3,
                failed_jobs_history_limit=3,
                job_template=k8s.batch.v1.JobTemplateSpecArgs(metadata=labels, spec=job),
            ),
            opts=self._child,
        )

    def _saving(self) -> k8s.core.v1.PodSpecArgs:
        args, backup, secrets = self._args, self._args.backup, self._args.secrets
        keys: dict[str, pulumi.Input[str]] = {
            "munge-key": secrets.munge.metadata.name,
            "jwt-key": secrets.jwt.metadata.name,
            "ssh-host-keys": secrets.ssh_host_keys.metadata.name,
            "database-password-kept": secrets.database.metadata.name,
            GENERATED: GENERATED,  # where `slurmstack` applies with kubectl
        }
        """Volume, and directory in the backup -> Secret."""
        seen = [
            _SECRET,
            volumes.mount("stage", "/stage"),
            volumes.mount("state", "/stage/volume", read_only=True),
            *(volumes.mount(key, f"{KEYS_DIR}/{key}", read_only=True) for key in keys),
            *self._database,
        ]
        parts = " ".join(["state", *(["database"] if args.accounting else []), "jail"])
        state = self._container("backup-state", seen, **self._accounting_env, PARTS=parts, **args.controller.volume.env)
        keep = " ".join(f"{span}={number}" for span, number in backup.keep if number)
        largest = str(parse_bytes(backup.largest_file))
        beside = k8s.core.v1.PodAffinityTermArgs(
            label_selector=args.scope.label_selector(CONTROLLER), topology_key="kubernetes.io/hostname"
        )
        near = k8s.core.v1.PodAffinityArgs(required_during_scheduling_ignored_during_execution=[beside])
        return k8s.core.v1.PodSpecArgs(
            affinity=k8s.core.v1.AffinityArgs(pod_affinity=near),
            init_containers=[state],
            containers=[self._jail_container("backup-jail", read_only=True, LARGEST_FILE=largest, KEEP=keep)],
            volumes=[
                *self._volumes(),
                *(
                    volumes.secret_volume(key, secret, optional=True if secret == GENERATED else None)
                    for key, secret in keys.items()
                ),
                volumes.empty_dir("stage", size_limit=STAGE),
                self._state,
                *args.jail.volume.volumes(),
            ],
        )

    def _looking(self) -> k8s.core.v1.PodSpecArgs:
        container = self._container("backups-list", [_SECRET])
        container.name = "backups"
        return k8s.core.v1.PodSpecArgs(containers=[container], volumes=self._volumes(database=False))

    def _restoring(self) -> k8s.core.v1.PodSpecArgs:
        state_env, users = self._args.controller.volume.env, self._args.users
        seen = [volumes.mount("state", "/stage/volume"), *self._database]
        return k8s.core.v1.PodSpecArgs(
            init_containers=[
                self._container("restore-choose", [_SECRET]),
                self._container("restore-state", seen, **self._accounting_env, **state_env),
                self._jail_container("restore-jail"),
            ],
            # Accounts are files of the jail: those of the stack file, not those of the backup's time.
            containers=[users.container()],
            volumes=[*self._volumes(), self._state, *users.volumes()],
        )

    def _rehearsing(self) -> k8s.core.v1.PodSpecArgs:
        """One container with all that it starts, and no key, no volume and no database of the cluster."""
        apart = {name: f"/run/{name}" for name in ("mysqld", "munge", "munged", "slurmstack")}
        shared = {"/secrets/munge": "keys", "/secrets/database": "keys", "/stage": "stage", "/var/lib/mysql": "stage"}
        made_up = [(name, path) for path, name in shared.items()]
        seen = [_SECRET, *(volumes.mount(name, path) for name, path in (*apart.items(), *made_up))]
        container = self._container("rehearse", seen, **self._accounting_env, MEMORY_LIMIT=str(parse_bytes(_MEMORY)))
        container.resources = pods.resources(cpu="100m", memory=_MEMORY, disk=_REHEARSED)
        memory = [volumes.memory_dir(name) for name in (*apart, "keys")]
        stage = volumes.empty_dir("stage", size_limit=_REHEARSED)
        return k8s.core.v1.PodSpecArgs(containers=[container], volumes=[*self._volumes(database=False), *memory, stage])

    def _jail_container(self, name: str, *, read_only: bool = False, **env: str) -> k8s.core.v1.ContainerArgs:
        exclude, volume = self._args.backup.exclude, self._args.jail.volume
        excluded = {"EXCLUDE": json.dumps(list(exclude))} if exclude else {}
        mounts = [volumes.mount("jail", "/jail", read_only=read_only), *volume.of_homes(read_only=read_only)]
        container = self._container(name, mounts, **excluded, **volume.env, **env)
        container.security_context = pods.into_jail(name)
        return container

    def _container(
        self, name: str, mounts: list[k8s.core.v1.VolumeMountArgs], **more: str
    ) -> k8s.core.v1.ContainerArgs:
        """`name`: the program and its step, with - between."""
        scope, backup = self._args.scope, self._args.backup
        env = {"REPOSITORY": backup.repository(scope.name), "REGION": backup.region, **more}
        return k8s.core.v1.ContainerArgs(
            name=name,
            image=scope.image("database"),  # which has restic, and the programs that dump and load
            command=pods.program(*name.split("-")),
            env=pods.env(**env),
            volume_mounts=[volumes.mount("handover", "/handover"), volumes.mount("cache", "/cache"), *mounts],
            resources=pods.resources(cpu="100m", memory="256Mi", disk="40Gi"),
        )

    def _volumes(self, *, database: bool = True) -> list[k8s.core.v1.VolumeArgs]:
        accounting = self._args.accounting if database else None
        return [
            volumes.secret_volume("repository", self._args.backup.credentials_secret),
            volumes.memory_dir("handover"),
            volumes.empty_dir("cache", size_limit="10Gi"),
            *([*accounting.database_volumes, volumes.memory_dir("run")] if accounting else []),
        ]
