"""What may be written down: text without the secrets that URLs carry."""

import re
from typing import Any

HIDDEN = "***"
USER = re.compile(r"(\b[A-Za-z][A-Za-z0-9+.-]*://)[^\s/?#@]+@")
QUERY = re.compile(
    r"([?&;][^=&#\s\"']*(?:token|key|secret|sig|signature|passw|credential|auth)[^=&#\s\"']*=)[^&#\s\"']+",
    re.IGNORECASE,
)
TOKEN = re.compile(r"\b(?:hf_|gh[opsur]_|github_pat_|glpat-)[A-Za-z0-9_-]{16,}")  # of the hubs that data comes from


def redacted(value: Any) -> Any:
    """JSON with `***` for user names and passwords in URLs, for what a URL's query calls a key, and for hubs' tokens.

    `https://me:word@host/a?token=1&part=2` becomes `https://***@host/a?token=***&part=2`.
    """
    if isinstance(value, str):
        plain = USER.sub(rf"\1{HIDDEN}@", value)
        return TOKEN.sub(HIDDEN, QUERY.sub(rf"\1{HIDDEN}", plain))
    if isinstance(value, dict):
        return {redacted(key): redacted(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(inner) for inner in value]
    return value
