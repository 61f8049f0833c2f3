"""The document behind `preview` and `validate --against`: the same whatever the stack is compared with."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from cli.change.change import Change, of_recording
from cli.change.effects import Effect
from cli.change.jobs import JobsTouched, read_queue, refusal
from cli.change.plan import jobs_of_plan, plan
from cli.change.plan import preview as changes_by_kubectl
from cli.engine import pulumi as engines
from cli.engine.plan import against_state_and_cluster, compared, foreseen, jobs_of
from cli.errors import CHANGES, REFUSED, USAGE, Failure, Refused
from cli.kubectl.client import Kubectl
from cli.preview import policy as policies
from cli.preview.policy import PolicyPlan
from cli.program.recording import record
from cli.stack import Stack, open_stack
from config import ConfigError

Outcome = Literal["none", "changes", "refused"]

NOT_COMPARED = "what else would change is not known: correct what is refused first"


@dataclass(frozen=True, kw_only=True)
class Preview:
    """What it takes to bring a cluster in line with a stack file."""

    stack: str
    against: Literal["cluster", "engine", "file"]
    """What the stack file was compared with: the cluster, Pulumi's state and the cluster, or an earlier stack file."""
    changes: tuple[Change, ...] = ()
    effects: tuple[Effect, ...] = ()
    notes: tuple[str, ...] = ()
    policy: PolicyPlan | None = None
    jobs: JobsTouched = field(default_factory=JobsTouched)
    """Which jobs the change touches; none where there is no queue to look at."""

    @property
    def compared(self) -> bool:
        """Whether all that would change is known."""
        return NOT_COMPARED not in self.notes

    @property
    def refused(self) -> tuple[str, ...]:
        """Each reason why the change is refused, with the way out."""
        effects = (f"{effect.kind} {effect.name}: {effect.refused}" for effect in self.effects if effect.refused)
        jobs = refusal(self.jobs)
        return (*effects, *([in_one_line(jobs)] if jobs else []))

    @property
    def outcome(self) -> Outcome:
        """Whether anything is to be changed, and whether it may be."""
        if self.refused:
            return "refused"
        of_policy = self.policy is not None and self.policy.changes
        return "changes" if self.changes or of_policy else "none"

    def as_data(self) -> dict[str, Any]:
        """The document for scripts."""
        return {
            "outcome": self.outcome,
            "stack": self.stack,
            "against": self.against,
            "changes": [change.as_data() for change in self.changes],
            "effects": [asdict(effect) for effect in self.effects],
            "refused": len(self.refused),
            "refusals": list(self.refused),
            "notes": list(self.notes),
            "jobs": self.jobs.as_data(),
            "policy": None if self.policy is None else asdict(self.policy),
        }


def exit_status(preview: Preview, *, detailed: bool) -> int:
    """0, or REFUSED; with `detailed` CHANGES if there is something to change."""
    if preview.outcome == "refused":
        return REFUSED
    return CHANGES if detailed and preview.outcome == "changes" else 0


def in_one_line(refused: Refused) -> str:
    """A refusal in one line, with the way out."""
    return f"{refused.message}. {refused.hint}" if refused.hint else refused.message


def of_cluster(kubectl: Kubectl, stack: Stack) -> Preview:
    """What an apply with kubectl would do. Raises Failure if the cluster is not one that kubectl may change.

    What we refuse, the API server may refuse too: then there is our reason, and no list of changes.
    """
    with ThreadPoolExecutor() as pool:  # Slurm is asked while the program loads and runs
        asked = pool.submit(read_queue, kubectl, stack.config.cluster.namespace)
        policy = pool.submit(policies.planned_policy, kubectl, stack.config)
        planned = plan(kubectl, stack.config, stack.sections, stack=stack.name)
        first = Preview(
            stack=stack.name, against="cluster", effects=planned.effects,
        )  # fmt: skip
        if first.refused:
            return replace(first, notes=(NOT_COMPARED,))
        try:
            found = changes_by_kubectl(kubectl, planned)
        except Refused as refusal:
            told = Effect(
                action="update", kind="Namespace", name=planned.namespace, because=(), cost="",
                refused=in_one_line(refusal),
            )  # fmt: skip
            return replace(first, effects=(*first.effects, told), notes=(NOT_COMPARED,))
    return replace(
        first,
        changes=tuple(found),
        policy=policy.result(),
        jobs=jobs_of_plan(kubectl, planned, asked),
    )


def of_engine(stack: Stack) -> Preview:
    """What an update by the Pulumi engine would do: by its state, and by its own look at what is there.

    What we refuse, the API server may refuse the engine's preview, too: so the engine is not asked then. Raises Failure
    with the engine's words if it cannot tell.
    """
    state = engines.export(stack)
    planned = against_state_and_cluster(stack, state)
    first = Preview(
        stack=stack.name, against="engine", effects=planned.effects,
        jobs=jobs_of(stack, planned),
    )  # fmt: skip
    if first.refused:
        return replace(first, notes=(NOT_COMPARED,))
    code, printed = engines.preview(stack)
    changes, warnings = foreseen(printed, planned, failed=code != 0)
    by_hand = any(change.action == "update" and not change.properties for change in changes)
    more = ["`pulumi preview --refresh --diff` shows what was changed by hand"] if by_hand else []
    return replace(
        first,
        changes=changes,
        notes=(*first.notes, *more, *(f"Pulumi: {warning}" for warning in warnings)),
        policy=policies.policy_of(stack),
    )


def of_files(stack: Stack, file: Path) -> Preview:
    """What the change from an earlier stack file means. Asks no cluster and no cloud, and needs no keys."""
    old = _earlier(file)
    runs = (record(sections, stack=stack.name) for sections in (old.sections, stack.sections))
    planned = compared(stack, *map(of_recording, runs))
    return Preview(
        stack=stack.name,
        against="file",
        # Keys are made once, whatever the stack file says.
        changes=tuple(item for item in planned.changes if not item.resource.type.startswith("random:")),
        effects=planned.effects,
    )


def _earlier(file: Path) -> Stack:
    """An earlier version of a stack file. Raises Failure if it is not a valid one."""
    try:
        return open_stack(file)
    except ConfigError as error:
        raise Failure(
            f"--against {file}: {error.problems[0].where}: {error.problems[0].message}",
            hint="name a version of the stack file that this version of slurmstack accepts",
            code=USAGE,
        ) from error
