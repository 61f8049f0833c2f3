"""Backups: the CronJob that saves the cluster, and what the commands make their Jobs from."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.accounting import SLURM_CONFIG_DIR, Accounting
from components.controller import Controller
from components.jail import Jail
from components.kit import pods, volumes
from components.kit.context import Scope
from components.secrets import Secrets
from components.users import Users
from config.base import parse_bytes, span_seconds
from config.sections.cloud import Role
from config.sections.monitoring import Backup as BackupConfig
from slurm.names import BACKUP, BACKUPS, CONFIG_MAP, CONTROLLER, GENERATED, REHEARSE, RESTORE

KEYS_DIR = "/secrets/keys"

_STACK_FILE = "Pulumi.saved.yaml"
"""The stack file as it was applied, without what it leaves to defaults."""

_CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "access-key-id", "AWS_SECRET_ACCESS_KEY": "secret-access-key", "RESTIC_PASSWORD": "password",
}  # fmt: skip
"""Variable of restic's -> key of the Secret that the stack file names."""

_AUTHORITY = {"ca.crt": "ca.crt"}
"""What alone of that Secret is a file, where it has that: the certificate of the store's own authority."""

STAGE = "20Gi"
"""For a copy of slurmctld's files, without the jobs' scripts: 100,000 jobs have about 200 MB."""

_REHEARSED = "100Gi"
"""Of a machine's disk, for the database and slurmctld's files of a rehearsal."""

_MEMORY = "1Gi"
"""For its MariaDB, slurmdbd and slurmctld together; the first takes half of it for its pool."""

_CPUS = "2"
"""That restic takes at most, whatever its machine has: jobs may run there."""

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

    It runs where slurmctld does, whose volume only one machine may have. `rehearse` tries the last one. Two more, which
    never run by themselves, say how a Job that looks at backups (`backups`) or puts one back (`restore`) has to be:
    `slurmstack` makes those. What the containers do is in images/backup/program.py.
    """

    def __init__(self, name: str, args: BackupArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:Backup", name, None, opts)
        self._child = pulumi.ResourceOptions(parent=self)
        self._name = name
        self._args = args
        accounting = args.accounting
        self._database = [*accounting.database_mounts, volumes.mount("run", "/run/slurmstack")] if accounting else []
        self._database_volumes = [*accounting.database_volumes, volumes.memory_dir("run")] if accounting else []
        self._of_accounting = {"CLUSTER_NAME": args.cluster_name} if accounting else {}
        self._state = volumes.claim_volume("state", args.controller.claim.metadata.name)
        self.backup = self._create(BACKUP, self._saving(), "controller", args.backup.schedule)
        self.backups = self._create(BACKUPS, self._looking(), "system")
        self.restore = self._create(RESTORE, self._restoring(), "controller")
        self.rehearse = self._create(REHEARSE, self._rehearsing(), "system", args.backup.rehearse)
        self.register_outputs({})

    def _create(
        self, name: str, spec: k8s.core.v1.PodSpecArgs, role: Role, schedule: str | None = None
    ) -> k8s.batch.v1.CronJob:
        scope, backup = self._args.scope, self._args.backup
        spec.restart_policy = "Never"
        authority = volumes.secret_volume("repository", backup.credentials_secret, files=_AUTHORITY, optional=True)
        cache = volumes.empty_dir("cache", size_limit="10Gi")
        spec.volumes = [authority, cache, *(spec.volumes or [])]  # type: ignore[misc]  # a list of ours
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
                schedule=schedule or _NEVER,
                time_zone="Etc/UTC",
                suspend=schedule is None,
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
        made = (secrets.munge, secrets.jwt, secrets.ssh_host_keys, secrets.database)
        named = ("munge-key", "jwt-key", "ssh-host-keys", "database-password-kept")
        keys = [volumes.secret_volume(name, each.metadata.name) for name, each in zip(named, made, strict=True)]
        keys.append(
            volumes.secret_volume(GENERATED, GENERATED, optional=True)
        )  # where `slurmstack` applies with kubectl
        seen = [
            volumes.mount("stage", "/stage"),
            volumes.mount("state", "/stage/volume", read_only=True),
            *(volumes.mount(name, f"{KEYS_DIR}/{name}", read_only=True) for name in (*named, GENERATED)),
            k8s.core.v1.VolumeMountArgs(
                name="stack-file", mount_path=f"/secrets/stack-file/{_STACK_FILE}", sub_path=_STACK_FILE, read_only=True
            ),
            *self._database,
        ]
        stack = args.scope.config.model_dump(mode="json", exclude_unset=True)
        document = json.dumps({"config": {f"slurmstack:{name}": value for name, value in stack.items()}}, indent=1)
        stack_file = k8s.core.v1.ConfigMap(
            f"{self._name}-stack-file",
            metadata=args.scope.metadata("stack-file", BACKUP),
            data={_STACK_FILE: document},
            opts=self._child,
        )
        parts = " ".join(["state", *(["database"] if args.accounting else []), "jail"])
        keep = " ".join(f"{span}={number}" for span, number in backup.keep if number)
        largest = str(parse_bytes(backup.largest_file))
        beside = k8s.core.v1.PodAffinityTermArgs(
            label_selector=args.scope.label_selector(CONTROLLER), topology_key="kubernetes.io/hostname"
        )
        near = k8s.core.v1.PodAffinityArgs(required_during_scheduling_ignored_during_execution=[beside])
        return k8s.core.v1.PodSpecArgs(
            affinity=k8s.core.v1.AffinityArgs(pod_affinity=near),
            init_containers=[self._container("backup-state", "state", seen, PARTS=parts, **args.controller.volume.env)],
            containers=[self._in_jail("backup-jail", "jail", read_only=True, LARGEST_FILE=largest, KEEP=keep)],
            volumes=[
                *self._database_volumes,
                *keys,
                volumes.config_volume("stack-file", stack_file.metadata.name),
                volumes.empty_dir("stage", size_limit=STAGE),
                self._state,
                *args.jail.volume.volumes(),
            ],
        )

    def _looking(self) -> k8s.core.v1.PodSpecArgs:
        return k8s.core.v1.PodSpecArgs(containers=[self._container("backups", "list", [])])

    def _restoring(self) -> k8s.core.v1.PodSpecArgs:
        seen, users = [volumes.mount("state", "/stage/volume"), *self._database], self._args.users
        told = {**self._of_accounting, **self._args.controller.volume.env}
        return k8s.core.v1.PodSpecArgs(
            init_containers=[
                self._container("restore-state", "restore-state", seen, **told),
                self._in_jail("restore-jail", "restore-jail", read_only=False),
            ],
            # Accounts are files of the jail: those of the stack file, not those of the backup's time.
            containers=[users.container()],
            volumes=[*self._database_volumes, self._state, *users.volumes()],
        )

    def _rehearsing(self) -> k8s.core.v1.PodSpecArgs:
        """One container with all that it starts, and no key, no volume and no database of the cluster."""
        apart = {name: f"/run/{name}" for name in ("mysqld", "munge", "munged", "slurmstack")}
        shared = {"/secrets/munge": "keys", "/secrets/database": "keys", "/stage": "stage", "/var/lib/mysql": "stage"}
        made_up = [(name, path) for path, name in shared.items()]
        seen = [volumes.mount(name, path) for name, path in (*apart.items(), *made_up, ("conf", SLURM_CONFIG_DIR))]
        told = {**self._of_accounting, "MEMORY_LIMIT": str(parse_bytes(_MEMORY))}
        container = self._container("rehearse", "rehearse", seen, **told)
        container.resources = pods.resources(cpu="100m", memory=_MEMORY, disk=_REHEARSED)
        memory = [volumes.memory_dir(name) for name in (*apart, "keys")]
        stage = volumes.empty_dir("stage", size_limit=_REHEARSED)
        return k8s.core.v1.PodSpecArgs(
            containers=[container], volumes=[volumes.config_volume("conf", CONFIG_MAP), *memory, stage]
        )

    def _in_jail(self, name: str, step: str, *, read_only: bool, **env: str) -> k8s.core.v1.ContainerArgs:
        exclude, volume = self._args.backup.exclude, self._args.jail.volume
        excluded = {"EXCLUDE": json.dumps(list(exclude))} if exclude else {}
        mounts = [volumes.mount("jail", "/jail", read_only=read_only), *volume.of_homes(read_only=read_only)]
        container = self._container(name, step, mounts, **excluded, **volume.env, **env)
        container.security_context = pods.into_jail(name)
        return container

    def _container(
        self, name: str, step: str, mounts: list[k8s.core.v1.VolumeMountArgs], **more: str
    ) -> k8s.core.v1.ContainerArgs:
        scope, backup = self._args.scope, self._args.backup
        env = {
            "RESTIC_REPOSITORY": f"s3:{backup.repository(scope.name)}", "AWS_DEFAULT_REGION": backup.region,
            "RESTIC_CACHE_DIR": "/cache", "TMPDIR": "/cache", "TZ": "UTC", "GOMAXPROCS": _CPUS, **more,
        }  # fmt: skip
        if backup.bandwidth is not None:
            env["BANDWIDTH"] = str(parse_bytes(backup.bandwidth))
        authority = volumes.mount("repository", "/secrets/repository", read_only=True)
        return k8s.core.v1.ContainerArgs(
            name=name,
            image=scope.image("database"),  # which has restic, and the programs that dump and load
            command=pods.program("backup", step),
            env=[*pods.env(**env), *(_of_secret(*each, backup.credentials_secret) for each in _CREDENTIALS.items())],
            volume_mounts=[authority, volumes.mount("cache", "/cache"), *mounts],
            resources=pods.resources(cpu="100m", memory="256Mi", disk="40Gi"),
            termination_message_policy="FallbackToLogsOnError",
        )


def _of_secret(variable: str, key: str, secret: str) -> k8s.core.v1.EnvVarArgs:
    source = k8s.core.v1.SecretKeySelectorArgs(name=secret, key=key)
    return k8s.core.v1.EnvVarArgs(name=variable, value_from=k8s.core.v1.EnvVarSourceArgs(secret_key_ref=source))
