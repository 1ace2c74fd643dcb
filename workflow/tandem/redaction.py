"""Keep secrets out of all that is printed or written: secrets in URLs, keys of endpoints, and tokens of hubs.

A URL that a user writes may hold a password or a signature. Snakemake prints and records the command lines of stages:
these have placeholders instead of secrets (`set_aside`). The environment has the secrets; `restored` puts them back.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any

HIDDEN = "***"
# least length of a secret that messages are searched for: hiding `EMPTY` or `test` would garble any message
SHORTEST = 8
# up to the last @: a password may hold one
USER = re.compile(r"(\b[A-Za-z][A-Za-z0-9+.-]*://)([^\s/?#\"']+)(?=@)")
QUERY = re.compile(  # punctuation of a sentence behind the URL does not belong to it
    r"([?&;][^=&#\s\"']*(?:token|key|secret|sig|signature|passw|credential|auth)[^=&#\s\"']*=)([^&#\s\"']*[^&#\s\"':;,.)])",
    re.IGNORECASE,
)
# Tokens of the hubs that data comes from. A model may be called hf_…, too: a token is longer and one word.
TOKEN = re.compile(
    r"()\b((?:hf_|gh[opsur]_)[A-Za-z0-9]{24,}|(?:github_pat_|glpat-)[A-Za-z0-9_-]{16,})"
)
# only characters that URLs and shells leave as they are
PLACE = re.compile(r"~(TANDEM_SECRET_\w+)~")

_known: set[str] = set()


def redacted(value: Any) -> Any:
    """Return JSON with `***` for user names and passwords in URLs, for keys in a URL's query, and for hubs' tokens.

    `https://me:word@host/a?token=1&part=2` becomes `https://***@host/a?token=***&part=2`.
    """
    return _replaced(value, lambda _: HIDDEN)


def set_aside(value: Any, name: str) -> tuple[Any, dict[str, str]]:
    """Return JSON with placeholders for its secrets, and the secrets by the variables that `restored` looks up.

    Args:
        name: distinguishes these placeholders from those of other values: letters, digits and underscores.
    """
    names: dict[str, str] = {}

    def place(secret: str) -> str:
        return f"~{names.setdefault(secret, f'TANDEM_SECRET_{name}_{len(names)}')}~"

    public = _replaced(value, place)
    return public, {variable: secret for secret, variable in names.items()}


def restored(value: Any, environment: Mapping[str, str]) -> Any:
    """Return JSON with the secrets back in their places; messages hide these secrets from now on.

    Raises:
        KeyError: names a variable that the environment lacks.
    """

    def secret(match: re.Match[str]) -> str:
        remember(environment[match[1]])
        return environment[match[1]]

    return _mapped(value, lambda text: PLACE.sub(secret, text))


def fingerprinted(text: str) -> str:
    """Return a text with the beginning of its sha256 for each secret, which distinguishes secrets and shows none."""
    return str(_replaced(text, lambda secret: hashlib.sha256(secret.encode()).hexdigest()[:8]))


def remember(secret: str) -> None:
    """Have `without_secrets` hide a secret wherever it occurs."""
    if len(secret) >= SHORTEST:
        _known.add(secret)


def without_secrets(text: str) -> str:
    """Return a message as `redacted` has it, and without the secrets that this process has used."""
    for secret in sorted(_known, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return str(redacted(text))


def _replaced(value: Any, by: Callable[[str], str]) -> Any:
    def replace(match: re.Match[str]) -> str:
        return match[1] + by(match[2])

    def in_text(text: str) -> str:
        for pattern in (USER, QUERY, TOKEN):
            text = pattern.sub(replace, text)
        return text

    return _mapped(value, in_text)


def _mapped(value: Any, change: Callable[[str], str], above: tuple[int, ...] = ()) -> Any:
    """Return JSON in which a function has changed every text, keys included.

    A value that contains itself, by an anchor of YAML, stays as it is: such a configuration is refused where it is
    read. `above` has the identities of the values that contain `value`.
    """
    if isinstance(value, str):
        return change(value)
    if id(value) in above:
        return value
    above = (*above, id(value))
    if isinstance(value, dict):
        return {_mapped(key, change): _mapped(inner, change, above) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_mapped(inner, change, above) for inner in value]
    return value
