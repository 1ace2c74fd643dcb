"""Secrets, which stand in nothing that is printed or written: those of URLs, of endpoints' keys, and hubs' tokens.

A URL that a user writes may hold a password or a signature. The command lines of stages, which Snakemake prints and
records, have places in their stead (`set_aside`), and the environment has the secrets; `restored` puts them back.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any

HIDDEN = "***"
# characters of a secret that is looked for in messages: `EMPTY` or `test` would garble any
SHORTEST = 8
# a password may hold @: up to the last one
USER = re.compile(r"(\b[A-Za-z][A-Za-z0-9+.-]*://)([^\s/?#\"']+)(?=@)")
QUERY = re.compile(  # a sentence's sign behind the URL is none of it
    r"([?&;][^=&#\s\"']*(?:token|key|secret|sig|signature|passw|credential|auth)[^=&#\s\"']*=)([^&#\s\"']*[^&#\s\"':;,.)])",
    re.IGNORECASE,
)
# Of the hubs that data comes from. A model may be called hf_…, too: a token is longer and one word.
TOKEN = re.compile(
    r"()\b((?:hf_|gh[opsur]_)[A-Za-z0-9]{24,}|(?:github_pat_|glpat-)[A-Za-z0-9_-]{16,})"
)
# only characters that URLs and shells leave as they are
PLACE = re.compile(r"~(TANDEM_SECRET_\w+)~")

_known: set[str] = set()


def redacted(value: Any) -> Any:
    """JSON with `***` for user names and passwords in URLs, for what a URL's query calls a key, and for hubs' tokens.

    `https://me:word@host/a?token=1&part=2` becomes `https://***@host/a?token=***&part=2`.
    """
    return _replaced(value, lambda _: HIDDEN)


def set_aside(value: Any, name: str) -> tuple[Any, dict[str, str]]:
    """JSON with places for its secrets, and the secrets by the names of the variables that `restored` looks up.

    Args:
        name: tells these places apart from those of other values: letters, digits and underscores.
    """
    names: dict[str, str] = {}

    def place(secret: str) -> str:
        return f"~{names.setdefault(secret, f'TANDEM_SECRET_{name}_{len(names)}')}~"

    public = _replaced(value, place)
    return public, {variable: secret for secret, variable in names.items()}


def restored(value: Any, environment: Mapping[str, str]) -> Any:
    """JSON with the secrets in their places, which messages do not show from now on.

    Raises:
        KeyError: names a variable that the environment lacks.
    """

    def secret(match: re.Match[str]) -> str:
        remember(environment[match[1]])
        return environment[match[1]]

    return _mapped(value, lambda text: PLACE.sub(secret, text))


def fingerprinted(text: str) -> str:
    """Return a text with each secret as the beginning of its sha256, which tells them apart and shows none."""
    return str(_replaced(text, lambda secret: hashlib.sha256(secret.encode()).hexdigest()[:8]))


def remember(secret: str) -> None:
    """Have `without_secrets` hide a secret wherever it stands."""
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
    """Return JSON in which every text, those of keys too, is changed by a function.

    What contains itself, by an anchor of YAML, stays: a configuration of such is refused where it is read. `above` are
    the identities of the values that `value` lies in.
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
