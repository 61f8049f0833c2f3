"""kubectl, bound to one cluster."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.errors import USAGE, Failure
from config.sections.cloud import Cloud, ExistingCloud, NebiusCloud
from slurm.local_cluster import LOCAL_CONTEXT, local_directory
from slurm.local_cluster import kubeconfig as local_kubeconfig
from slurm.names import CONTROLLER_HOST

FIELD_MANAGER = "slurmstack"
"""Owner of the fields that we set, in server-side apply."""

OWNERS = "--show-managed-fields"
"""For `kubectl get`, where it matters who has set a field: it leaves that out by itself."""

_TIMEOUT = 20
"""Seconds for one request."""

_STREAMS = frozenset({"exec", "logs", "port-forward"})

ANSWER_SECONDS = 20
"""Slurm's own commands give up after MessageTimeout (30 s) a try; what answers at all does in less."""

ASK_SLURMDBD = "timeout -k 1 5 sacctmgr --noheader --parsable2 list cluster </dev/null >/dev/null 2>&1"
"""A question that slurmdbd answers in 10 ms: it fails after 5 s at most."""

NO_SLURMDBD = 97
"""Exit status where slurmdbd has not answered; none of a program of ours or of Slurm."""

SILENT_SLURMDBD = "slurmdbd does not answer"

_UNDONE = 124
"""Exit status of what did not end in its time, as of timeout(1)."""


@dataclass(frozen=True, kw_only=True)
class Kubectl:
    """One cluster, as kubectl is told of it."""

    program: str
    context: str
    kubeconfig: str | None
    standby: bool = False
    """Whether there are two controllers, of which the Service leads to the active one."""

    def run(
        self, *arguments: str, stdin: str | None = None, check: bool = True, seconds: float = 600
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl to its end. Raises Failure with its own message if it fails and `check` is set.

        `seconds`: how long at most. kubectl itself waits for ever for a pod whose machine is lost.
        """
        # A timeout ends streams too, however long a command in a pod may rightly take.
        timeout = [] if arguments[0] in _STREAMS else [f"--request-timeout={min(_TIMEOUT, seconds):g}s"]
        command = [*self.command(), *timeout, *arguments]
        try:
            # Logs may have any bytes.
            done = subprocess.run(
                command,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                input=stdin,
                check=False,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            done = subprocess.CompletedProcess(command, _UNDONE, "", f"no answer within {seconds:g} s")
        except OSError as error:
            raise Failure(f"kubectl cannot be run: {error}") from error
        if check and done.returncode != 0:
            raise Failure(message(done.stderr) or f"kubectl {' '.join(arguments[:2])} failed")
        return done

    def command(self) -> list[str]:
        """The command line up to kubectl's own verb, for a program that replaces this one."""
        kubeconfig = ["--kubeconfig", self.kubeconfig] if self.kubeconfig else []
        return [self.program, *kubeconfig, "--context", self.context]

    @property
    def shown(self) -> str:
        """As a shell takes it, with what leads into this cluster: kubectl by itself may lead into another one."""
        return shlex.join(["kubectl", *self.command()[1:]])

    def items(self, *arguments: str) -> list[dict[str, Any]]:
        """Objects of `kubectl get`, also if only one was asked for. Those that do not exist are left out."""
        printed = self.run("get", "--ignore-not-found", *arguments, "-o", "json").stdout
        found = understood(printed) if printed.strip() else {"items": []}
        return list(found["items"]) if "items" in found else [found]


def understood(printed: str) -> Any:
    """An answer of the API server. Raises Failure if it is none: a proxy's page, say."""
    try:
        return json.loads(printed)
    except ValueError:
        raise Failure(
            f"what answers is no Kubernetes API server: {printed.strip()[:80]!r}",
            hint="check the server's address in the kubeconfig, and proxies on the way",
        ) from None


_REFUSALS = ("Unauthorized", "must be logged in", "Forbidden", "forbidden")
"""In kubectl's words for what the API server answers with 401 and 403."""


LOG_IN = "log in to the cluster anew, or ask its administrator for rights in the namespace"


def hint_after(complaint: str, otherwise: str) -> str:
    """What to do about a complaint: where it is the API server's own about us, that comes first."""
    return LOG_IN if any(word in complaint for word in _REFUSALS) else otherwise


def in_controller(
    kubectl: Kubectl, namespace: str, *command: str, stdin: str | None = None, seconds: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run a command beside slurmctld, for so many seconds at most. Its exit status is kubectl's; nothing is raised."""
    of_two = [f"service/{CONTROLLER_HOST}", "--pod-running-timeout=5s"]
    pod = of_two if kubectl.standby else [CONTROLLER_HOST]
    where = ("exec", *(["-i"] if stdin is not None else []), "-n", namespace, *pod, "-c", "slurmctld", "--")
    return kubectl.run(*where, *command, stdin=stdin, check=False, seconds=seconds)


def refuse_no_namespace(kubectl: Kubectl, namespace: str) -> None:
    """Raises Failure if there is none; not for those who may not ask."""
    done = kubectl.run("get", "--ignore-not-found", "namespace", namespace, "-o", "name", check=False)
    if done.returncode == 0 and not done.stdout.strip():
        raise Failure(f"there is no namespace {namespace}", hint="`slurmstack up` makes it")


def if_slurmdbd_answers(command: Sequence[str]) -> list[str]:
    """A command that does not run, and ends with NO_SLURMDBD, where slurmdbd leaves a short question without an answer.

    Slurm's own commands would wait for minutes for a slurmdbd that hangs. One that refuses is left to their words.
    """
    first = f"{ASK_SLURMDBD}; case $? in 124|137) exit {NO_SLURMDBD};; esac"
    return ["sh", "-c", f'{first}; exec "$@"', "sh", *command]


def slurmdbd_answers(kubectl: Kubectl, namespace: str) -> subprocess.CompletedProcess[str]:
    """Ask slurmdbd that short question alone, before something that may rightly take long.

    It ends with NO_SLURMDBD as above; with 0 where the long question may be put. Nothing is raised.
    """
    return in_controller(kubectl, namespace, *if_slurmdbd_answers(["true"]), seconds=ANSWER_SECONDS)


def slurm(kubectl: Kubectl, namespace: str, *command: str) -> str:
    """What a Slurm command prints in the controller's pod; empty if it fails."""
    done = in_controller(kubectl, namespace, *command, seconds=ANSWER_SECONDS)
    return done.stdout if done.returncode == 0 else ""


def connect(cloud: Cloud, *, seconds: float = 600, ask: bool = True, standby: bool = False) -> Kubectl:
    """Kubectl for the cluster of a stack. Raises Failure if it, the context or the cluster is not there.

    `standby`: whether the stack has two controllers. `seconds`: how long the API server may be silent; kubectl itself
    gives up after some tries of 20 s. `ask`: whether it is asked at all whether it answers; who asks it something else
    anyway may do that first.
    """
    if isinstance(cloud, NebiusCloud):
        raise Failure("this cluster is made by its stack", hint="reach it with the kubeconfig that the stack exports")
    kubeconfig = _kubeconfig(cloud)
    context = cloud.context or LOCAL_CONTEXT
    if cloud.is_local and not Path(str(kubeconfig)).exists():
        raise Failure("the local cluster is not running", hint="start it with `slurmstack local up` (or `make up`)")
    if kubeconfig and not Path(kubeconfig).exists():
        raise Failure(
            f"cloud.kubeconfig: there is no file {kubeconfig}", hint="a relative path starts where you are", code=USAGE
        )
    kubectl = Kubectl(program=find_program(), context=context, kubeconfig=kubeconfig, standby=standby)
    if not ask:
        return kubectl
    answer = kubectl.run("get", "--raw", "/readyz", check=False, seconds=seconds)
    if answer.returncode == 0:
        return kubectl
    refusal = message(answer.stderr)
    if f'context "{context}" does not exist' in refusal:
        where = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
        raise Failure(
            f"cloud.context: {context!r} is not a context of {where}",
            hint="change slurmstack:cloud in the stack file, or name another kubeconfig there",
            code=USAGE,
        )
    hint = "`slurmstack local up` starts it again" if cloud.is_local else "check the network and VPN"
    raise Failure(f"the cluster of context {context!r} does not answer: {refusal}", hint=hint_after(refusal, hint))


def _kubeconfig(cloud: ExistingCloud) -> str | None:
    if cloud.is_local:
        return str(local_kubeconfig())
    return str(Path(cloud.kubeconfig).expanduser()) if cloud.kubeconfig else None


def find_program() -> str:
    """The kubectl command: the one on PATH, else the one that was built for the local cluster."""
    found = shutil.which("kubectl")
    if found is not None:
        return found
    built = sorted((local_directory() / "cache" / "bin").glob("*/kubectl"))
    if built:
        return str(built[-1])
    raise Failure("kubectl is not on PATH", hint="install it, or run `make up`, which builds it")


def message(stderr: str) -> str:
    """The last lines of kubectl's complaint, without its log prefixes, after those that name an object.

    Below one that is invalid a list may stand, or a long text with lines that differ.
    """
    lines = [line for line in stderr.strip().splitlines() if not line.startswith(("E0", "E1", "I0", "I1", "W0", "W1"))]
    named = [line for line in lines[:-6] if " is invalid:" in line]
    return "\n".join([*named, *lines[-6:]])


def is_unknown(done: subprocess.CompletedProcess[str]) -> bool:
    """Whether the cluster does not know the kind of what was asked for, or has none of it."""
    return done.returncode != 0 and ("have a resource type" in done.stderr or "(NotFound)" in done.stderr)


def is_forbidden(done: subprocess.CompletedProcess[str]) -> bool:
    """Whether the credentials may not do it. Rights are judged before it is looked whether there is such a kind."""
    return done.returncode != 0 and "(Forbidden)" in done.stderr


_QUERY = re.compile(r"(?<=\w)\?command=[^\s\"]*")


def complaint(done: subprocess.CompletedProcess[str]) -> str:
    """Why a command in a pod has failed, in its own words, or in those of kubectl where it was not even started.

    That names the kubelet's URL, with the whole command in its query.
    """
    said = _QUERY.sub("", message(done.stderr))
    lines = [line for line in said.splitlines() if not line.startswith("command terminated with")]
    return "\n".join(lines) or done.stdout.strip() or "no message"


def is_true(item: Mapping[str, Any], *conditions: str) -> bool:
    """Whether Kubernetes says any of these conditions of an object."""
    found = item.get("status", {}).get("conditions", [])
    return any(condition["type"] in conditions and condition["status"] == "True" for condition in found)


def labels_of(item: Mapping[str, Any]) -> Mapping[str, str]:
    """An object's labels."""
    return item["metadata"].get("labels") or {}


def annotations_of(item: Mapping[str, Any]) -> Mapping[str, str]:
    """An object's annotations."""
    return item["metadata"].get("annotations") or {}


def component_of(item: Mapping[str, Any]) -> str:
    """Which part of the cluster an object is: `controller`, `worker`, ...; empty if its labels say nothing."""
    return labels_of(item).get("app.kubernetes.io/component", "")


def cluster_labels(namespace: str) -> str:
    """Selector of all that belongs to the cluster in a namespace."""
    return f"app.kubernetes.io/part-of=slurmstack,app.kubernetes.io/instance={namespace}"


def as_list(documents: Sequence[dict[str, Any]]) -> str:
    """Objects as one JSON list for kubectl's standard input."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(documents)})
