"""The document behind `preview` and `validate --against` (files.py), the same whatever the stack is compared with.

And how people read it: on a terminal, and as one comment for a pull request. Both have the same lines.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from cli.access.reach import reach_if_made
from cli.change.change import Action, Change, PropertyChange, counts_of
from cli.change.effects import Effect
from cli.change.engine_plan import against_state_and_cluster, foreseen, jobs_of
from cli.change.jobs import JobsTouched, read_queue, refusal
from cli.change.jobs import lines as job_lines
from cli.change.plan import changes, jobs_of_plan, plan
from cli.change.rollout import worked_jobs
from cli.engine import pulumi as engines
from cli.errors import CHANGES, REFUSED, Failure, Refused
from cli.kubectl.client import NO_SLURMDBD, SILENT_SLURMDBD, Kubectl, if_slurmdbd_answers, is_true, message
from cli.stack import Stack
from config.cluster import ClusterConfig
from slurm.names import ACCOUNTING, ACCOUNTING_HOST
from slurm.policy import COMPONENT, environment, policy_document

Outcome = Literal["none", "changes", "refused"]

NOT_COMPARED = "what else would change is not known: correct what is refused first"


@dataclass(frozen=True, kw_only=True)
class PolicyPlan:
    """What an apply would change in Slurm."""

    changes: tuple[str, ...]
    notes: tuple[str, ...]
    """What is left as it is, and why there is no comparison if there is none."""


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
        policy = pool.submit(planned_policy, kubectl, stack.config)
        planned = plan(kubectl, stack.config, stack.sections, stack=stack.name)
        first = Preview(stack=stack.name, against="cluster", effects=planned.effects)
        if first.refused:
            return replace(first, notes=(NOT_COMPARED,))
        try:
            found = changes(kubectl, planned)
        except Refused as refusal:
            effect = Effect(
                action="update", kind="Namespace", name=planned.namespace, because=(), cost="",
                refused=in_one_line(refusal),
            )  # fmt: skip
            return replace(first, effects=(*first.effects, effect), notes=(NOT_COMPARED,))
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
        policy=policy_of(stack),
    )


# The policy: what would change in Slurm, by a look at Slurm itself

_PROGRAM = "/usr/libexec/slurmstack/policy"


def planned_policy(kubectl: Kubectl | None, config: ClusterConfig) -> PolicyPlan | None:
    """Compare the stack file with Slurm. None without accounting, and where slurmdbd does not run yet."""
    if kubectl is None or not config.accounting.enabled:
        return None
    namespace = config.cluster.namespace
    pods = kubectl.items("pod", ACCOUNTING_HOST, "-n", namespace)
    if not pods or not is_true(pods[0], "Ready"):
        return None
    variables = [f"{name}={value}" for name, value in environment(config).items()]
    where = ("exec", "-i", "-n", namespace, ACCOUNTING_HOST, "-c", ACCOUNTING, "--")
    asked = if_slurmdbd_answers(["env", *variables, _PROGRAM, "--plan", "-"])  # which may rightly take long
    done = kubectl.run(*where, *asked, stdin=policy_document(config), check=False)
    if done.returncode == NO_SLURMDBD:
        return _not_compared(SILENT_SLURMDBD)
    try:
        answer = json.loads(done.stdout)
        return PolicyPlan(changes=tuple(answer["changes"]), notes=tuple(answer["notes"]))
    except (ValueError, KeyError, TypeError):
        return _not_compared(message(done.stderr) or "no answer")


def policy_of(stack: Stack) -> PolicyPlan | None:
    """The same for a stack whose cluster may not be there, or may not answer: that stops no preview."""
    if not stack.config.accounting.enabled:
        return None
    try:
        return planned_policy(reach_if_made(stack), stack.config)
    except Failure as failure:
        return _not_compared(str(failure))


def _not_compared(why: str) -> PolicyPlan:
    return PolicyPlan(changes=(), notes=(f"! the policy in force cannot be compared: {why}",))


def run_again(kubectl: Kubectl, config: ClusterConfig, planned: PolicyPlan | None) -> None:
    """Delete the job that has done its work where Slurm has something else now: the update makes and awaits it anew."""
    if planned is None or not planned.changes:
        return
    ours = ("-n", config.cluster.namespace, "-l", f"app.kubernetes.io/component={COMPONENT}")
    jobs = kubectl.items("job", *ours)
    if any(is_true(job, "Complete") for job in jobs) or worked_jobs(kubectl, config.cluster.namespace, jobs):
        kubectl.run("delete", "job", *ours, "--cascade=foreground", "--ignore-not-found")


# For people

_SIGNS: Mapping[Action, str] = {"create": "+", "update": "!", "replace": "!", "delete": "-"}
"""What colours a line of a diff: green, orange, orange, red."""

_LONGEST = 300
"""Characters of a value that are shown."""
_BEFORE = 40
"""Characters before the first difference of two long values."""
_MOST_LINES = 40
"""Lines of a changed text that are shown."""


def change_lines(found: Sequence[Change]) -> Iterator[str]:
    """Each object with what differs of it."""
    for change in found:
        yield _head(change.action, change.kind, change.name)
        for item in change.properties:
            yield from property_lines(item)


def effect_lines(effects: Iterable[Effect]) -> Iterator[str]:
    """What would be replaced or deleted, and what that loses. What is refused stands in the refusal."""
    for effect in effects:
        if effect.cost:
            yield _head(effect.action, effect.kind, effect.name)
            for item in effect.because:
                yield from property_lines(item)
            yield f"    {spelled_out(effect.cost)}"


def beside_objects(preview: Preview) -> list[str]:
    """All but the objects."""
    return [
        *effect_lines(preview.effects),
        *map(spelled_out, job_lines(preview.jobs)),
        *(f"note: {spelled_out(note)}" for note in preview.notes),
        *_policy(preview.policy),
    ]


def _policy(planned: PolicyPlan | None) -> list[str]:
    found = [spelled_out(line) for line in (*planned.changes, *planned.notes)] if planned is not None else []
    return ["policy in Slurm:", *found] if found else []


def property_lines(item: PropertyChange) -> Iterator[str]:
    """A changed property: what differs of long values, and of texts the lines that do."""
    path, old, new = spelled_out(item.path), item.old, item.new
    if isinstance(old, str) and isinstance(new, str) and "\n" in old + new:
        yield f"    {path}:"
        diff = list(difflib.unified_diff(old.splitlines(), new.splitlines(), n=0, lineterm=""))
        changed = [line for line in diff[2:] if not line.startswith("@@")]
        yield from (f"{line[0]}       {_short(line[1:])}" for line in changed[:_MOST_LINES])
        if len(changed) > _MOST_LINES:
            yield f"        ... {len(changed) - _MOST_LINES} more changed lines; --json has all"
        return
    before, after = around_difference(*("" if each is None else _text(each) for each in (old, new)))
    if old is not None:
        yield f"-   {path}: {before}"
    if new is not None:
        yield f"+   {path}: {after}"
    if old is None and new is None:
        yield f"    {path}"


def around_difference(old: str, new: str) -> tuple[str, str]:
    """Both texts, or, if one is long, a part of each from shortly before their first difference on."""
    if max(len(old), len(new)) <= _LONGEST:
        return old, new
    common = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    start = max(common - _BEFORE, 0)
    return _short(old, start), _short(new, start)


def _short(text: str, start: int = 0) -> str:
    text = spelled_out(text)
    part = text[start : start + _LONGEST]
    return text if part == text else f"{'...' if start else ''}{part}... ({len(text)} characters)"


def _text(value: Any) -> str:
    return spelled_out(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _head(action: Action, kind: str, name: str) -> str:
    return spelled_out(f"{_SIGNS[action]} {action} {kind} {name}")


def spelled_out(text: str) -> str:
    """The text in one line: what ends one, what is invisible and what turns the direction of reading is spelled out."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def counted(found: Sequence[Change]) -> str:
    """`1 to create, 2 to update`."""
    return ", ".join(f"{count} to {action}" for action, count in counts_of(found).items()) or "no changes"


LIMIT = 65_000
"""Bytes of a comment at most. GitHub refuses more than 65,536 characters."""


def markdown(preview: Preview) -> str:
    """The preview as a comment of at most LIMIT bytes. The same preview is always the same comment.

    Its first line is not shown: by that a pipeline finds the comment that it wrote before. Whoever opens a pull
    request chooses much of what stands in a preview: names, settings, whole files. So all of that is in one fenced
    block, with a fence longer than anything in it and one line for each line that we print. There Markdown knows no
    markup, no mentions, no links, and GitLab no quick actions. Outside stand only words of ours.
    """
    stack = re.sub(r"[^A-Za-z0-9_.-]+", "_", preview.stack)[:100]  # a file's name, of the characters that Pulumi allows
    summary = counted(preview.changes)
    if preview.outcome == "refused":
        summary = f"**refused**, {len(preview.refused)} to correct"
    elif preview.outcome == "changes" and not preview.changes:
        summary = "only the policy in Slurm changes"
    head = f"<!-- slurmstack preview of {stack} -->\n### slurmstack: stack `{stack}`: {summary}"
    if preview.against == "file":
        head += "\n\nNo cluster was asked: what was changed by hand and which jobs run is not known here."
    refused = [f"! refused: {spelled_out(reason)}" for reason in preview.refused]
    lines = [*refused, *beside_objects(preview), *change_lines(preview.changes)]
    return "\n".join([head, "", *_fenced(lines)]) if lines else head


def _fenced(lines: Sequence[str]) -> list[str]:
    """The lines in a block. Where some are left out, the last line says how many."""
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    bytes_left, kept = LIMIT - 2 * len(fence) - 500, list[str]()
    for line in lines:
        bytes_left -= len(line.encode()) + 1
        if bytes_left < 0:
            break
        kept.append(line)
    left = len(lines) - len(kept)
    more = [f"# ... {left} more lines are left out; `slurmstack preview` prints all"] if left else []
    return [f"{fence}diff", *kept, *more, fence]
