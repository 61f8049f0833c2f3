"""What `sacctmgr dump` wrote: QOS and accounts with their limits; users, whose numbers it does not have."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

from cli.importing.draft import Draft
from cli.importing.files import Parameter, read_text
from config.sections.accounting import Account, Qos

_LINE = re.compile(r"(?i)\s*(QOS|Cluster|Parent|Account|User)\s*-\s*'?([^':\s][^':]*)'?(.*)")
_OPTION = re.compile(r":([A-Z][A-Za-z]+)=('[^']*'|.*?)(?=:[A-Z][A-Za-z]+=|$)")
_SHORT = {"PA": "PerAccount", "PU": "PerUser", "WallDurationPerJob": "Wall", "PrioThresh": "PrioThreshold"}
"""End of an option -> as the stack file has it."""


def read_dump(path: Path, draft: Draft) -> dict[str, list[str]]:
    """QOS and accounts into the draft; the accounts of each user. Raises Failure where the file cannot be read."""
    users: dict[str, list[str]] = {}
    parent = "root"
    for number, text in enumerate(read_text(path).split("\n"), 1):
        if not text.strip() or text.lstrip().startswith("#"):
            continue
        word = partial(Parameter, file=str(path), line=number)
        found = _LINE.fullmatch(text.rstrip())
        if found is None:
            draft.leave(word(key="", value=text), "is no line that sacctmgr dump writes")
            continue
        kind, name = found[1].lower(), found[2]
        head = word(key=found[1], value=name)
        if kind == "parent":
            parent = name
        elif kind == "qos" or (kind == "account" and name != "root"):
            place = ("qos" if kind == "qos" else "accounts", name)
            draft.put(place, {"parent": parent} if kind == "account" and parent != "root" else {}, head)
            for key, value in _OPTION.findall(found[3]):
                end = next((end for end in _SHORT if key.endswith(end)), "")
                field, option = key.removesuffix(end) + _SHORT.get(end, ""), word(key=key, value=value.strip("'"))
                if not draft.put_field(place, Qos if kind == "qos" else Account, field, option):
                    draft.leave(option, "the stack file has nothing of the kind: set it with sacctmgr")
        elif kind == "user" and name != "root":
            users.setdefault(name, []).append(parent)
            own = [f"{key}={value}" for key, value in _OPTION.findall(found[3]) if key != "DefaultAccount"]
            also = "; set with sacctmgr: " + ", ".join(own) if own and own != ["Fairshare=1"] else ""
            draft.leave(head, f"has no uid in a dump: write `id -u` into the comment at the stack file's end{also}")
        else:
            draft.leave(head, "has what holds for the root of all accounts: set it with sacctmgr")
    return users
