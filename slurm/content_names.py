"""Names of objects that are replaced when their content changes."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def content_name(stem: str, content: Any) -> str:
    """`<stem>-<8 hex>`: another content gives another name, and so a new object beside the old one.

    `content` is anything that JSON can hold; the order of keys does not matter.
    """
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return f"{stem}-{hashlib.sha256(canonical.encode()).hexdigest()[:8]}"
