"""What a bundle says to its reader: the configuration to make the table again from, and how."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tandem.extras.plan import FullPlan
from tandem.provenance.bundled import AGAIN
from tandem.provenance.wanted import Told
from tandem.redacted import redacted
from tandem.reporting.lineage import Stage
from tandem.stages import KINDS

TRAINED = [name for name, kind in KINDS.items() if kind.ranks]


def layout(plan: FullPlan, name: str) -> Iterator[Path]:
    """A table's layout and what it reads beside itself."""
    yield plan.tables.layouts[name]
    yield from map(Path, plan.tables.beside(name))


def configuration(plan: FullPlan, name: str) -> str:
    """The resolved configuration with every default, for the one table; without secrets.

    A layout of one's own is the bundle's; folders of data and of encoders are told in full, since it is read elsewhere.
    """
    config: dict[str, Any] = redacted(plan.document())
    own = plan.tables.layouts[name]
    config["tables"] = [f"../layout/{own.name}"] if own in map(Path, plan.settings.tables) else [name]
    for entry in [*config["datasets"].values(), *config["encoders"].values()]:
        if isinstance(entry.get("path"), str):
            entry["path"] = str(Path(entry["path"]).absolute())
    if Path(config["encoder"]).is_dir():
        config["encoder"] = str(Path(config["encoder"]).absolute())
    return yaml.safe_dump(config, allow_unicode=True, sort_keys=True)


def readme(name: str, told: Told, stages: list[Stage]) -> str:
    """How to see that the bundle is whole, and how to make the table again."""
    manifests = [stage.artifact.manifest for stage in stages]
    commits = sorted({str(manifest.get("commit")) for manifest in manifests})
    dirty = any(manifest.get("dirty") for manifest in manifests)
    said = "\nSome stages ran with changes that no commit has; their manifests say which (`dirty`).\n"
    table = f"results/tables/{name}.csv"
    return f"""# {name}

Made with Tandem at commit {", ".join(commits)} from {told.name}.
{said if dirty else ""}
- `results/tables/`: the table; `lineage.txt`: every stage behind it, with parameters, versions, seed and machine
- `results/*/*/*/stage.json`: their manifests; scores and runs with their files, of the others the checksums alone
- `config.yaml`: the configuration with every default; `layout/`: the table's rows and printed numbers
- `envs/`: the pinned libraries

Whether this folder is whole: `tandem verify .`

## To make the table again

In this folder, where `TANDEM` is a checkout at that commit with `envs/requirements.lock` installed:

```sh
snakemake -s "$TANDEM/Snakefile" --directory {AGAIN} --configfile config.yaml --cores {_cores(manifests)} {table}
diff {table} {AGAIN}/{table} && echo "the same numbers"
```

What it starts from is not in here; other folders are told in `config.yaml`, or after `--config`:

{"".join(_origins(manifests))}
Another processor or number of cores trains with other last bits. `tandem why <a folder in {AGAIN}/> <the folder here>`
tells what else differs between two stages of one key.
"""


def _cores(manifests: list[dict[str, Any]]) -> int:
    """How many threads trained: sums are split by threads."""
    used = [manifest.get("execution", {}).get("workers") for manifest in manifests if manifest["kind"] in TRAINED]
    return max((count for count in used if isinstance(count, int)), default=1)


def _origins(manifests: list[dict[str, Any]]) -> Iterator[str]:
    """A line for each dataset and encoder that comes from elsewhere."""
    for manifest in manifests:
        params, how = manifest["params"], manifest.get("execution", {})
        if manifest["kind"] not in ("dataset", "encoder"):
            continue
        found = [file["url"] for file in how.get("files", {}).values() if "url" in file]
        found += [str(Path(how["path"]).absolute())] if "path" in how else []
        if params["source"] == "hub":
            found.append(f"{params['name']}, commit {manifest.get('hub_commit') or params['revision']}")
        where = "; ".join(dict.fromkeys(found)) or params.get("id") or params.get("package") or "made here"
        yield f"- {manifest['kind']} {manifest['key']} ({params['source']}): {where}\n"
