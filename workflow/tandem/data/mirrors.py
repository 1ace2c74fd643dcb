"""Where a URL's bytes may also be had: mirrors that are asked first, and a folder that stands in for any URL.

`TANDEM_DATA` names that folder (by default `~/.cache/tandem`). Downloads are kept in it as `<host>/<path>`, so that a
folder filled on one machine serves another without network.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from tandem.errors import UserError

VARIABLE = "TANDEM_DATA"
Mirrors = Sequence[Mapping[str, str]]  # {from: the beginning of URLs, to: what is put in its place}


def data_folder() -> Path:
    """The folder of `TANDEM_DATA`, absolute; it need not exist yet."""
    return Path(os.environ.get(VARIABLE) or "~/.cache/tandem").expanduser().absolute()


def alternatives(url: str, mirrors: Mirrors) -> list[str]:
    """URLs to try in order: each mirror whose `from` the URL begins with, then the URL itself."""
    told = [one["to"] + url.removeprefix(one["from"]) for one in mirrors if url.startswith(one["from"])]
    return list(dict.fromkeys([*told, url]))


def local(url: str) -> Path | None:
    """The path of a `file://` URL; None for any other."""
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def kept_at(url: str) -> Path:
    """Where a URL's bytes are kept: `<host>/<path>` in the data folder, a query behind `?`.

    Raises:
        UserError: a URL without a host or a file name, or with `..` in its path.
    """
    parts = urlsplit(url)
    path = unquote(parts.path).lstrip("/")
    if not parts.netloc or not path or path.endswith("/") or {"", ".", ".."} & set(path.split("/")):
        raise UserError(f"{url}: names no file; a URL is https://host/path/file")
    name = f"{path}?{quote(parts.query, safe='=&')}" if parts.query else path
    return data_folder() / quote(parts.netloc, safe=".-_") / name
