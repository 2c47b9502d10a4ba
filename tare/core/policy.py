"""What a page's content-security policy says of its scripts."""

from __future__ import annotations

import base64
import hashlib


def allowed(script: str) -> str:
    """The source that allows this script in a page and no other one: its hash."""
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
