"""The command `export`: a dual encoder and the index of its passages as a folder for plain FAISS and transformers."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tandem.artifact import Artifact, open_artifact, write_text
from tandem.data.collection import CORPUS, Collection
from tandem.errors import UserError
from tandem.models.template import Template
from tandem.plan.graph import Stage
from tandem.progress import Progress, say
from tandem.retrieval.embeddings import Embeddings
from tandem.searching import words as command_line
from tandem.searching.built import require_built
from tandem.searching.export_card import Exported, card
from tandem.searching.flat import write_flat
from tandem.searching.systems import DUAL, KINDS, part, resolve

FLAT, IDS, TEXTS = "passages.faiss", "ids.txt", "texts.parquet"
TUNED = {"nprobe": "nprobe", "ef_search": "efSearch"}  # an index's parameters, and FAISS's names


def main(words: list[str]) -> int:
    """`export MODEL --out FOLDER [FILE.yaml …] [--index NAME] [--texts] [--dataset NAME]`.

    Args:
        words: MODEL is a dual encoder; `--index` one of `indexes:` instead of all vectors (flat); `--texts` adds the
            passages' texts; the others as for `search`.
    """
    told = command_line.read(words, ("--out", "--index", "--dataset"), ("--texts",))
    if len(told.names) != 1 or "--out" not in told.values:
        raise UserError("say one model and --out FOLDER")
    system = "@".join([told.names[0], *(told.values[flag] for flag in ("--index",) if flag in told.values)])
    folder, plan = Path(told.values["--out"]), told.plan()
    wanted = set(plan.stages)
    run = resolve(plan, system)
    if KINDS.get(run.kind) != DUAL:
        raise UserError(f"{system} is no dual encoder; only vectors can be exported as an index")
    require_built(part(run).needs.values(), wanted, system, told)
    with fresh(folder) as draft:
        fill(draft, system, run, plan.split, "--texts" in told.switches)
    print(f"{folder}: {system}; how to search it is in {folder / 'README.md'}")
    return 0


@contextmanager
def fresh(folder: Path) -> Iterator[Path]:
    """A folder to write into that gets its name when it is whole; a `UserError` where there is something already."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UserError(f"{folder}: is there already and not an empty folder; name another, or remove it")
    draft = folder.absolute().with_name(f".{folder.name}.{os.getpid()}")
    try:
        draft.mkdir(parents=True)
        yield draft
        os.replace(draft, folder)
    except OSError as error:
        raise UserError(f"{error.filename or folder}: cannot be written: {error.strerror}") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def fill(folder: Path, system: str, run: Stage, split: str, texts: bool) -> None:
    """Write everything into a folder.

    Args:
        folder: empty.
        system: the expression that is exported.
        run: the stage of its run.
        split: whose first query is the example.
        texts: whether the passages' texts are wanted.
    """
    needs = {role: open_artifact(Path(stage.folder)) for role, stage in part(run).needs.items()}
    passages, collection = Embeddings(needs["passages"], "passages"), Collection(needs["dataset"])
    say(f"export {system} · {passages.rows:,} passages")
    shutil.copytree(needs["model"].folder / "dual", folder / "dual")
    with open(folder / IDS, "w", encoding="utf-8", newline="\n") as file:
        for number, batch in enumerate(collection.batches(columns=["doc_id"])):
            file.write(("\n" if number else "") + "\n".join(batch["doc_id"].to_pylist()))
    if texts:
        shutil.copyfile(needs["dataset"].path(CORPUS), folder / TEXTS)
    files, factory = [FLAT], "Flat"
    if "index" in needs:
        files, factory = _copy_index(needs["index"], folder)
    else:
        with Progress(f"export {system}", passages.rows, "passages") as progress:
            write_flat(folder / FLAT, passages, progress)
    template = Template.from_json(json.loads(needs["tokens"].path("meta.json").read_text())["template"])
    query, passage = (needs["tokens"].params[f"{side}_length"] + template.extra[0] for side in ("query", "passage"))
    exported = Exported(
        dual=json.loads((folder / "dual/dual.json").read_text()),
        tokens=(query, passage),
        passages=passages.rows,
        precision=needs["passages"].manifest["precision"],
        dtype=passages.dtype,
        indexes=files,
        factory=factory,
        tuned={TUNED[key]: value for key, value in run.values.items() if key in TUNED and value},
        texts=texts,
        query=next(iter(collection.queries(split).values())),
        lineage={role: artifact.key for role, artifact in needs.items()},
    )
    write_text(folder / "README.md", card(system, exported))


def _copy_index(index: Artifact, folder: Path) -> tuple[list[str], str]:
    """Copy an index's files under their names, which its inverted lists are found by.

    Returns:
        The files to open, in the order of their passages, and FAISS's name of the index.
    """
    meta = json.loads(index.path("meta.json").read_text())
    for name in index.manifest["files"]:
        if name != "meta.json":
            shutil.copyfile(index.path(name), folder / name)
    return [one["file"] for one in meta["indexes"]], meta["factory"]
