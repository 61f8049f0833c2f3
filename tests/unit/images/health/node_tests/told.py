"""What the program says."""

from __future__ import annotations

import json

H100 = "8x NVIDIA H100 80GB HBM3"


def told(text: str, code: int = 0) -> str:
    return json.dumps({"code": code, "text": text, "platform": H100})
