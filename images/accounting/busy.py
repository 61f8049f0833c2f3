"""What left the stack file while jobs use it: it stays until they end, and takes no new ones.

slurmdbd removes no user from an account, no account and no QOS under a job that waits or runs. A team whose people come
and go must not have to wait for their jobs before anything else can be applied.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from images.accounting.document import Job, Key, ObjectKind, State
from images.accounting.fields import Attributes
from images.accounting.wording import busy_line


def with_busy(present: State, wanted: State, jobs: Iterable[Job]) -> tuple[State, list[str]]:
    """The wanted state and what stays beside it for the sake of jobs, with a line about each."""
    ids = _used(jobs)
    associations = {key: ids[("association", *key[:2])] for key in _leaving(present, wanted, "association")}
    associations = {key: found for key, found in associations.items() if found}
    accounts = {key: ids[("account", *key)] for key in _leaving(present, wanted, "account")}
    above = _above(present, [*(key[1] for key in associations), *(key[0] for key, found in accounts.items() if found)])
    qos = {key: found for key in _leaving(present, wanted, "qos") if (found := ids[("qos", *key)])}
    lines = [
        *(busy_line("association", key, found) for key, found in sorted(associations.items())),
        *(busy_line("account", key, accounts[key]) for key in sorted(above) if key in accounts),
        *(busy_line("qos", key, found) for key, found in sorted(qos.items())),
    ]
    state = State(
        qos={**wanted.qos, **{key: present.qos[key] for key in qos}},
        accounts={**wanted.accounts, **{key: _idle(present.accounts[key]) for key in above if key in accounts}},
        associations={
            **wanted.associations,
            **{key: {**_idle(present.associations[key]), "max_submit_jobs": 0} for key in associations},
        },
        users={**{(user,): present.users[(user,)] for user, *_ in associations}, **wanted.users},
        reservations=wanted.reservations,
    )
    return state, lines


def _used(jobs: Iterable[Job]) -> Mapping[tuple[str, ...], Sequence[str]]:
    """Numbers of jobs by the kind and the name of what they use."""
    found: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for job in jobs:
        found[("association", job.user, job.account)].append(job.id)
        found[("account", job.account)].append(job.id)
        found[("qos", job.qos)].append(job.id)
    return found


def _leaving(present: State, wanted: State, kind: ObjectKind) -> Iterator[Key]:
    return (key for key in present.of(kind) if key not in wanted.of(kind))


def _above(present: State, names: list[str]) -> set[Key]:
    """These accounts and all above them."""
    found: set[Key] = set()
    while names:
        key = (names.pop(),)
        if key in present.accounts and key not in found:
            found.add(key)
            names.append(str(present.accounts[key]["parent"]))
    return found


def _idle(values: Attributes) -> dict[str, Any]:
    """Without a default QOS, which must be one that is allowed, also by accounts above that may lose it now."""
    return {**values, "default_qos": None}
