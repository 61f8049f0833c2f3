"""From the old cluster's files to the text of a stack file, and the list of what it has and has not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from cli.errors import Failure
from cli.importing.accounts import read_dump
from cli.importing.draft import Draft, plain
from cli.importing.files import Line, Parameter, hosts, read_lines
from cli.importing.nodes import Node, put_pools, read_nodes
from config import ConfigError, load_config
from config.load import PROJECT
from images.common.slurm_records import compress
from slurm.conf import effective_settings

_WHY = {
    "Prolog Epilog PrologSlurmctld EpilogSlurmctld HealthCheckProgram HealthCheckInterval HealthCheckNodeState": (
        "belongs to a program of the old cluster; slurmstack:health has checks (docs/health.md)"
    ),
    "TaskProlog TaskEpilog SrunProlog SrunEpilog MailProg MailDomain RebootProgram UnkillableStepProgram PluginDir "
    "PlugStackConfig": "is a program of the old cluster, which the images do not have",
    "JobSubmitPlugins": "is a program of the old cluster; slurmstack:job_submit has the usual rules",
    "JobCompType JobCompLoc JobCompParams": "sacct has the records of jobs: leave it out",
    "SlurmctldHost ControlMachine ControlAddr BackupController BackupAddr SlurmctldAddr": "hosts are pods here",
    "SrunPortRange": "Services are made for our ports",
    "TmpFS": "jobs have a /tmp of their own: worker_nodes.<pool>.tmp is its size",
    "JobCredentialPrivateKey JobCredentialPublicCertificate AuthInfo": "is a path of the old cluster",
    "FastSchedule CryptoType CacheGroups CheckpointType SchedulerPort SchedulerRootFilter AccountingStorageLoc "
    "JobCheckpointDir MemLimitEnforce SallocDefaultCommand UsePAM": "Slurm has dropped it, or a pod has no use for it",
    "ProctrackType JobAcctGatherType TaskPlugin SwitchType NodeFeaturesPlugins": (
        "workers decide it by their machine; where a pool has confinement: off, slurm.settings can say it"
    ),
    "AccountingStorageType AccountingStorageHost AccountingStoragePort AccountingStoragePass AccountingStorageUser": (
        "jobs are recorded by slurmdbd here; accounting.enabled: false turns it off"
    ),
    "GresTypes MaxNodeCount": "is made from the pools",
    "SuspendTime SuspendTimeout ResumeTimeout ResumeRate SuspendRate": (
        "use an elastic pool: worker_nodes.<pool>.size: {min: 0, max: N} with idle_timeout and resume_timeout"
    ),
    "SuspendExcNodes SuspendExcParts": "say how many nodes stay up: worker_nodes.<pool>.size.min",
    "FrontendName": "nodes are pods, each with a slurmd of its own",
    "DownNodes": "nodes begin idle: drain them with scontrol",
}
"""Keys that `slurm.settings` would take, or refuse without saying what to use instead."""
_NAMED = {"nodename", "nodeset", "partitionname"}
"""Keys of lines that are about what they name."""
_TIMES = {"suspendtime": "idle_timeout", "resumetimeout": "resume_timeout"}
"""Key -> field of elastic pools."""
_SHOWN = 10
"""Lines of nodes in a message."""
_LEFT = {key.lower(): why for keys, why in _WHY.items() for key in keys.split()}

_FIELDS = {
    "AllowAccounts": "allow_accounts", "DenyAccounts": "deny_accounts", "AllowGroups": "allow_groups",
    "AllowQos": "allow_qos", "DenyQos": "deny_qos", "MaxTime": "max_time", "DefaultTime": "default_time",
    "QOS": "qos", "PriorityTier": "priority_tier", "Priority": "priority_tier", "PreemptMode": "preempt_mode",
    "Default": "default",
}  # fmt: skip
"""Option of a partition -> field, with its value's kind: names are lists, tiers numbers."""
_SLURMS_OWN = {
    "State=UP", "Default=NO", "Hidden=NO", "RootOnly=NO", "OverSubscribe=NO", "Shared=NO", "MinNodes=1", "LLN=NO",
    "ExclusiveUser=NO", "AllowAccounts=ALL", "AllowGroups=ALL", "AllowQos=ALL", "MaxTime=INFINITE", "GraceTime=0",
    "MaxTime=UNLIMITED", "MaxTime=-1", "MaxNodes=UNLIMITED", "PriorityTier=1", "InactiveLimit=0", "WaitTime=0",
    "JobCompType=jobcomp/none", "SwitchType=switch/none", "JobAcctGatherFrequency=30", "FirstJobId=1",
    "AccountingStorageType=accounting_storage/slurmdbd", "PreemptType=preempt/none",
    "TopologyPlugin=topology/flat", "TopologyPlugin=topology/default", "TopologyPlugin=topology/none",
}  # fmt: skip
"""Slurm's defaults as configurators write them out."""
_WORDS = {**dict.fromkeys(("yes", "true", "up", "1"), True), **dict.fromkeys(("no", "false", "down", "0"), False)}
"""As Slurm reads them (s_p_handle_boolean)."""
_DEFAULTS = {text.lower() for text in _SLURMS_OWN}


Group = tuple[set[str], list[Parameter]]
"""Names of nodes, and what says that they are together."""


def convert(slurm_conf: Path, gres_conf: Path | None, dump: Path | None) -> tuple[str, Draft]:
    """The text, and what went into it. Raises Failure where a file cannot be read, or no node is found."""
    draft = Draft()
    lines = _understood(slurm_conf, draft)
    nodes = read_nodes(lines, _understood(gres_conf, draft) if gres_conf is not None else [], draft)
    if not nodes:
        refused = [f"{one.place}: {one.text}: {why}" for one, why in draft.left if one.key.lower() in {"", "nodename"}]
        if refused:
            raise Failure("\n".join(refused[:_SHOWN]), hint="correct these lines: no node could be taken")
        raise Failure(f"{slurm_conf} has no node", hint="its NodeName lines may be in a file that it includes")
    members = _read_partitions(lines, nodes, draft)
    pools = put_pools(nodes, members, draft)
    for partition, names in members.items():
        draft.sections["partitions"][partition]["pools"] = [pool for pool, own in pools.items() if names & {*own}]
    users = read_dump(dump, draft) if dump is not None else {}
    _read_settings(lines, draft)
    draft.settle()
    draft.leave_rest()
    return _text(slurm_conf, draft.sections, pools, users), draft


def _understood(path: Path, draft: Draft) -> list[Line]:
    """The lines; a word that is no pair is left, and a line without a name."""
    found: list[Line] = []
    for pairs in read_lines(path):
        line = {pair.key.lower(): pair for pair in pairs}
        if word := line.pop("", None):
            draft.leave(word, "is not understood: slurm.conf has KEY=VALUE, and quotes in pairs")
        draft.read.append(pairs)
        name = next((pair.value for key, pair in line.items() if key in _NAMED), "-")
        if "=" in name or not name.strip(", "):
            draft.leave(next(iter(line.values())), "has no name")
        elif line:
            found.append(line)
    return found


def _read_partitions(lines: Iterable[Line], nodes: Mapping[str, Node], draft: Draft) -> dict[str, set[str]]:
    """Partitions into the draft, without their pools; the nodes of each."""
    groups = _groups(lines, nodes, draft)
    defaults: Line = {}
    found: dict[str, set[str]] = {}
    for line in lines:
        if next(iter(line)) != "partitionname":
            continue
        if line["partitionname"].value.upper() == "DEFAULT":
            defaults |= line
            continue
        options = defaults | line
        head = options.pop("partitionname")
        name = head.value
        valid = re.sub("[^A-Za-z0-9_.-]", "-", name)[:60]
        valid = f"p-{valid}" if valid[:1] in ".-" or valid.upper() == "ALL" else valid
        members, words = _members(options.pop("nodes", None), groups, draft)
        if valid in found:
            draft.leave(
                head, f"{valid} is in {draft.taken['partitions', valid][0].place} already: Slurm has a name once"
            )
        elif members:
            if valid != name:
                draft.leave(head, f"is no name of a partition here: it became {valid}")
            found[valid] = members
            draft.put(("partitions", valid), {"pools": []}, head, *words)
            for parameter in options.values():
                _put_option(("partitions", valid), parameter, draft)
        else:
            draft.leave(head, "has no node: a partition is over at least one pool")
    chosen = [place for place in found if draft.sections["partitions"][place].get("default")]
    for place in chosen[:-1]:
        del draft.sections["partitions"][place]["default"]
        for parameter in draft.taken.pop(("partitions", place, "default")):
            draft.leave(parameter, "only one partition is the default: the last one is, as to Slurm")
    return found


def _groups(lines: Iterable[Line], nodes: Mapping[str, Node], draft: Draft) -> dict[str, Group]:
    """What `Nodes` of a partition may name. A set may stand below the partitions over it."""
    groups: dict[str, Group] = {**{name: ({name}, []) for name in nodes}, "ALL": ({*nodes}, [])}
    for line in lines:
        if next(iter(line)) == "nodeset":
            members, words = _members(line.get("nodes"), groups, draft)
            features = {*line["feature"].value.split(",")} if "feature" in line else set()
            members |= {host for host, node in nodes.items() if features & {*node.value("feature").split(",")}}
            words += [line[key] for key in ("nodeset", "feature") if key in line]
            groups[line["nodeset"].value] = members, words
    return groups


def _members(parameter: Parameter | None, groups: Mapping[str, Group], draft: Draft) -> Group:
    if parameter is None:
        return set(), []
    members, words = set[str](), [parameter]
    try:
        unknown = []
        for name in hosts(parameter.value):
            own, said = groups.get("ALL" if name.upper() == "ALL" else name, (set(), []))
            unknown += [] if own else [name]
            members, words = members | own, words + (said if own else [])
        if unknown:
            draft.leave(parameter, f"{compress(unknown)[:100]} is no node of the NodeName lines that were taken")
    except ValueError as error:
        draft.leave(parameter, f"is not understood: {error}")
    return members, words


def _put_option(place: tuple[str, str], parameter: Parameter, draft: Draft) -> None:
    field = next((field for key, field in _FIELDS.items() if key.lower() == parameter.key.lower()), None)
    if f"{parameter.key}={parameter.value}".lower() in _DEFAULTS:
        draft.same.append(parameter)
    elif parameter.key.lower() in _LEFT:
        draft.leave(parameter, _LEFT[parameter.key.lower()])
    elif field is None:
        draft.put_setting(place, parameter)
    elif field == "default" and parameter.value.lower() not in _WORDS:
        draft.leave(parameter, "is neither YES nor NO")
    elif field == "default":
        draft.put((*place, field), _WORDS[parameter.value.lower()], parameter)
    elif field.startswith(("allow", "deny")):
        draft.put((*place, field), [part for part in parameter.value.split(",") if part], parameter)
    elif field == "preempt_mode":
        draft.put((*place, field), _without_gang(parameter, draft), parameter)
    else:
        draft.put((*place, field), plain(parameter.value) if field == "priority_tier" else parameter.value, parameter)


def _without_gang(parameter: Parameter, draft: Draft) -> str:
    """The mode; GANG comes with SUSPEND by itself."""
    modes = parameter.value.lower().split(",")
    mode = ",".join(mode for mode in modes if mode != "gang")
    if "gang" in modes and mode != "suspend":
        draft.leave(parameter, "GANG: jobs take turns with preemption.mode suspend alone")
    return mode


def _last_settings(lines: Iterable[Line], draft: Draft) -> Line:
    """Those that Slurm goes by."""
    last: Line = {}
    for line in lines:
        (folded, parameter), *others = line.items()
        if folded in _NAMED:
            continue
        if folded in last:
            draft.leave(last[folded], _LEFT.get(folded, f"stands again in line {parameter.line}, which holds"))
        last[folded] = parameter
        for _, other in others if folded not in _LEFT else ():
            draft.leave(other, f"stands behind {parameter.key}, where Slurm takes no other key")
    if "propagateresourcelimitsexcept" in last and (idle := last.pop("propagateresourcelimits", None)):
        draft.leave(idle, "has no effect beside PropagateResourceLimitsExcept")
    return last


def _read_settings(lines: Iterable[Line], draft: Draft) -> None:
    last = _last_settings(lines, draft)
    try:
        ours = effective_settings(load_config({"worker_nodes": draft.sections["worker_nodes"]}))
    except ConfigError:  # what is wrong with the pools is told in the end
        ours = {}
    draft.known = {key.lower() for key in ours}
    same = _DEFAULTS | {"preemptmode=off"} | {f"{key}={value}".lower() for key, value in ours.items()}
    if "accounts" in draft.sections:
        # Accounts that are declared are enforced.
        same |= {f"accountingstorageenforce={parameter.value}".lower() for parameter in last.values()}
    for folded, parameter in last.items():
        if f"{folded}={parameter.value}".lower() in same:
            draft.same.append(parameter)
        else:
            _put_setting(folded, parameter, draft)


def _put_setting(key: str, parameter: Parameter, draft: Draft) -> None:
    elastic = [name for name, pool in draft.sections["worker_nodes"].items() if isinstance(pool["size"], dict)]
    if key in _TIMES and elastic and re.fullmatch("[1-9][0-9]{0,6}", parameter.value):
        for name in elastic:
            draft.put(("worker_nodes", name, _TIMES[key]), f"{parameter.value}s", parameter)
    elif key in _LEFT:
        draft.leave(parameter, _LEFT[key])
    elif key in _SECTIONS:
        path, values = _SECTIONS[key]
        value = _without_gang(parameter, draft) if key == "preemptmode" else parameter.value.lower()
        draft.put(path, values.get(value, parameter.value), parameter)
    elif key == "licenses":
        for name, _, count in (part.replace("*", ":").partition(":") for part in parameter.value.split(",")):
            draft.put(("licenses", name), plain(count or "1"), parameter)
    elif key == "clustername":
        valid = re.sub("[^a-z0-9_-]", "-", parameter.value.lower())[:40]
        if valid != parameter.value.lower():
            draft.leave(parameter, f"is no name of a cluster here: it became {valid}")
        draft.put(("slurm", "cluster_name"), valid, parameter)
    else:
        draft.put_setting(("slurm",), parameter)


_SECTIONS: dict[str, tuple[tuple[str, str], dict[str, str]]] = {
    "topologyplugin": (("topology", "plugin"), {"topology/tree": "tree"}),
    "preempttype": (("preemption", "type"), {"preempt/partition_prio": "partition", "preempt/qos": "qos"}),
    "preemptmode": (("preemption", "mode"), {mode: mode for mode in ("suspend", "requeue", "cancel")}),
}
"""Key -> place in the stack file, and its values there."""

_HEAD = """\
# Made by `slurmstack import` of {source}. A line with "decide" waits for you; then `slurmstack validate --config FILE`.
config:
  # decide: the context of your kubeconfig, as in {{kind: existing, context: my-context}}
  {project}:cloud: {{kind: existing}}
  # decide: where the nodes pull images from
  # {project}:images: {{registry: registry.example.com/slurm}}
  # decide: a storage class that offers ReadWriteMany, and the size of the homes
  # {project}:jail: {{size: 500Gi, storage_class: shared-rwx}}
  # decide: cpus and memory are those of the old nodes, of which Kubernetes keeps some for itself: take no more than
  # a machine has allocatable (`kubectl describe node`), and choose the machines with node_selector
"""


def _text(source: Path, sections: Mapping[str, Any], pools: Mapping[str, list[str]], users: Mapping[str, Any]) -> str:
    text = _HEAD.format(source=source.name, project=PROJECT)
    for name in sorted(sections, key=lambda name: (name != "worker_nodes", name)):
        if sections[name]:
            dumped = yaml.safe_dump({f"{PROJECT}:{name}": sections[name]}, sort_keys=False, width=110)
            text += "".join(f"  {line}\n" for line in dumped.splitlines())
    for pool, members in pools.items():
        text = text.replace(f"\n    {pool}:\n", f"\n    {pool}:  # {compress(members)[:100]}\n", 1)
    if users:
        text += f"  # decide: take away the '#', and write each user's own uid (`id -u`)\n  # {PROJECT}:users:\n"
        text += "".join(f"  #   {name}: {{uid: ..., accounts: [{', '.join(own)}]}}\n" for name, own in users.items())
    return text
