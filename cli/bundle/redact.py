"""Takes secrets out of text: the values of the namespace's Secrets, and what looks like a secret."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

REMOVED = "<removed>"

SHORTEST = 8
"""Bytes of a value that is looked for: shorter ones stand in many words."""

_COMMON = frozenset({
    "changeme", "container", "controller", "database", "default", "hostname", "kubernetes", "localhost", "namespace",
    "password", "postgres", "slurm_acct_db", "slurmctld", "slurmdbd", "username",
})  # fmt: skip
"""Values that are no secrets, and without which nobody could read the rest."""

_SECRET_NAME = re.compile(
    r"(?i)(?:pass|password|passwd|passphrase|passcode|authtok|token|secure|secret|encryptionsalt|encryptedkey"
    r"|credentials?|(?:private|secret|access|api|signing|munge|jwt|shared|encryption)[_.-]?key)$"
)
"""The end of keys whose values are secrets."""

_REFERENCE = re.compile(r"(?i)(?:pull|password|key|token|tls)[_-]?secret$")
"""The end of keys whose values are names of Secrets."""

_NO_VALUE = re.compile(
    r"(?i)(?:true|false|null|none|yes|no|~|[|>]-?|\(null\)|[\[{]+)?[\]})]*|<removed.*|(?-i:(?:/[a-z0-9_.-]+)+)"
    r"|[\w$-]+:[x*!]?:\d+:[\s\S]*"
)
"""Words, what was removed already, names of files (those of daemons' keys, say), and what a file `passwd` has."""

_ASSIGNED = re.compile(
    r"(?i)(?P<name>(?:pass(?:word|wd|phrase|code)?|authtok|(?<!pull[_-])secret|token"
    r"|(?:private|secret|access|api|signing)[_.-]?key)"
    r"\\*[\"']?[ \t]*[=:][ \t]*)"
    r"(?P<value>\\{1,16}\"(?:(?!\\{1,16}\").){1,4000}\\{1,16}\"|\"(?:[^\"\\\n]|\\.)+\"|'[^'\n]+'|[^\s\"',;&\\]+)"
)
"""`password=...`, also quoted, and quoted within JSON."""

_HOOK = re.compile(r"https?://[^\s/\"'<>]+/[^\s\"'<>{}\[\],]{8,}")
"""Whose path may be all that one needs to know."""

_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"-----BEGIN ([A-Z0-9 ]*)PRIVATE KEY-----(?:(?:(?!-----BEGIN)[\s\S]){0,20000}?-----END \1PRIVATE KEY-----"
            r"|(?:\\[nrt]|[A-Za-z0-9+/=\s])*)"
        ),
        "<removed: private key>",
    ),
    (re.compile(r"eyJ(?:(?!eyJ)[\w-]){5,}\.[\w-]{5,}\.[\w-]*"), "<removed: token>"),
    (re.compile(r"(?i)(bearer\s+)[\w.~+/-]{16,}=*"), rf"\1{REMOVED}"),
    (re.compile(r"(?i)(authorization\\*[\"']?\s*[:=]\s*\\*[\"']?\w+\s+)[^\s\"'\\]+"), rf"\1{REMOVED}"),
    (re.compile(r"(?i)(--(?:pass(?:word)?|token|secret|api-key)[ \t]+)(?!-)[^\s\"']+"), rf"\1{REMOVED}"),
    (re.compile(r"([a-z][a-z0-9+.-]{0,20}://[^\s:/@\"']*:)[^\s/@\"']+(@)"), rf"\1{REMOVED}\2"),
)


@dataclass(frozen=True, kw_only=True)
class Redactor:
    """Replaces what is secret."""

    known: tuple[tuple[str, str], ...] = ()
    """(text, what comes in its place), the longest first."""

    def __call__(self, text: str) -> str:
        """The text without secrets. What is known goes first, with the name of its Secret."""
        for secret, marker in self.known:
            if secret in text:
                text = text.replace(secret, marker)
        for pattern, instead in _PATTERNS:
            text = pattern.sub(instead, text)
        return _ASSIGNED.sub(_without_value, text)


def _without_value(match: re.Match[str]) -> str:
    value = match["value"]
    if _NO_VALUE.fullmatch(value.strip("\\\"'")):
        return match[0]
    mark = value[: len(value) - len(value.lstrip("\\\"'"))]
    return f"{match['name']}{mark}{REMOVED}{mark}"


def redactor(secrets: Iterable[Mapping[str, Any]]) -> Redactor:
    """One that knows the values of these Secrets, as Kubernetes has them."""
    known: dict[str, str] = {}
    for secret in secrets:
        for key, encoded in (secret.get("data") or {}).items():
            for form in _forms(base64.b64decode(encoded)):
                known.setdefault(form, f"<removed: secret {secret['metadata']['name']}/{key}>")
    return Redactor(known=tuple((text, known[text]) for text in sorted(known, key=len, reverse=True)))


def _forms(value: bytes) -> Iterator[str]:
    """A value as it may stand in a text: whole and by lines, plain, in Base64, as JSON and as JSON within JSON."""
    for piece in {value, value.strip(), *(line.strip() for line in value.splitlines()), *_inside(value)}:
        plain = piece.decode("utf-8", "replace")
        if len(piece) >= SHORTEST and plain.lower() not in _COMMON:
            yield from (plain, base64.b64encode(piece).decode().rstrip("="))
            once = json.dumps(plain, ensure_ascii=False)[1:-1]
            yield from (once, json.dumps(once, ensure_ascii=False)[1:-1])


def _inside(value: bytes) -> Iterator[bytes]:
    """What is secret in a file that is a Secret's value, as `alertmanager.yml`: passwords, and addresses of hooks."""
    text = value.decode("utf-8", "replace")
    for match in _ASSIGNED.finditer(text):
        if not _NO_VALUE.fullmatch(said := match["value"].strip("\\\"'")):
            yield said.encode()
    yield from (found.encode() for found in _HOOK.findall(text))


def without_secrets(value: Any, *, name: str = "") -> Any:
    """A document without what its own keys call a secret: `secure:`, `password:`, and variables of such names."""
    if isinstance(value, Mapping):
        variable = value.get("name")
        called = {"value": variable} if isinstance(variable, str) and isinstance(value.get("value"), str) else {}
        return {key: without_secrets(item, name=called.get(key, str(key))) for key, item in value.items()}
    if isinstance(value, list):
        return [without_secrets(item, name=name) for item in value]
    named = _SECRET_NAME.search(name) and not _REFERENCE.search(name) and not _NO_VALUE.fullmatch(str(value))
    return REMOVED if name == "secure" or (isinstance(value, str) and named) else value
