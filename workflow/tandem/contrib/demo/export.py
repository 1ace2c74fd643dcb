"""The command `export`: a dual encoder and the index of its passages as a folder for plain FAISS and transformers.

It also exports a system's run, or its scores as the files that MTEB's `ResultCache` reads, one for each task. Their
format is that of mteb 2.26: `results/<model>/<revision>/<task>.json` (`TaskResult`), with `model_meta.json` next to it.
Measures of confidence (nAUC) are not written, nor are times, which are in the manifests.
"""

import json
import math
import shutil
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import numpy as np

from tandem import ROOT
from tandem.cluster.progress import Progress, say
from tandem.config.datasets import MtebTask
from tandem.config.indexes import SIGN_INDEX
from tandem.config.merging import shipped_entries
from tandem.contrib.demo.systems import (
    find_part,
    require_built,
    require_given_lists,
    require_system,
    resolve_system,
)
from tandem.data.collection import CORPUS, EXCLUDED, Collection
from tandem.data.runs import iter_ranking, write_trec
from tandem.errors import UserError, nearest
from tandem.evaluation.measures import Qrels
from tandem.evaluation.scores import score_run
from tandem.extras.drafts import draft_file, hold, remove_abandoned
from tandem.extras.planning import split_groups
from tandem.extras.report.page import render_markdown
from tandem.extras.searched_indexes import COPIES_FILE
from tandem.extras.serving import require_pieces
from tandem.extras.targets import (
    Configuration,
    Configurations,
    choose_configuration,
    split_files,
)
from tandem.extras.usage import POOLING_CODE, fit_auto_class
from tandem.models.hub import load_tokenizer
from tandem.models.saving import DualShape
from tandem.models.tokens import Tokens
from tandem.plan.context import Context, find_first_stage
from tandem.plan.graph import Stage
from tandem.plan.reported import reported_split, run_depth, usual_split
from tandem.retrieval.embeddings import Embeddings
from tandem.stages.base import Json
from tandem.stages.data import DatasetParams
from tandem.stages.evaluation import ScoreParams
from tandem.store.artifact import open_artifact
from tandem.store.files import replacing, write_json, write_text
from tandem.store.job import Job

PAGE = Path(__file__).parent / "assets/export.md"
FLAT, IDS, TEXTS = "passages.faiss", "ids.txt", "texts.parquet"
TUNED = {"nprobe": "nprobe", "ef_search": "efSearch"}  # an index's parameters, and FAISS's names
# The header of a flat index, as faiss/impl/index_write.cpp writes it: its mark, the dimension, the number of vectors,
# two unused numbers, whether it is trained, the metric, and the number of values that follow.
HEADER = struct.Struct("<4siqqq?iQ")
MARK, UNUSED, INNER_PRODUCT = b"IxFI", 1 << 20, 0

# MTEB's cutoffs and measures
CUTOFFS = (1, 3, 5, 10, 20, 100, 1000)
MEASURES = {
    "ndcg": "nDCG",
    "map": "AP",
    "recall": "R",
    "precision": "P",
    "mrr": "RR",
    "hit_rate": "Success",
}
# the reported split → keys that change it, so that it is no longer MTEB's
CUT = {
    "test": ("test_queries", "train_from_test"),
    "dev": ("dev_queries", "dev_from_train"),
    "train": ("train_queries", "dev_from_train", "train_from_test"),
}
# fields of MTEB's `ModelMeta` that a run does not determine
UNKNOWN: Json = dict.fromkeys((
    "loader", "release_date", "languages", "n_parameters", "memory_usage_mb", "max_tokens", "embed_dim", "license",
    "open_weights", "public_training_code", "public_training_data", "similarity_fn_name", "use_instructions",
    "training_datasets",
)) | {"framework": []}  # fmt: skip


def export(
    model: str,
    /,
    *files: str,
    out: Path,
    index: str | None = None,
    texts: bool = False,
    mteb: bool = False,
    run: bool = False,
    split: str | None = None,
    dataset: str | None = None,
    configurations: Configurations = (),
) -> None:
    """Write a dual encoder and the index of its passages as a folder for plain FAISS and transformers.

    With `--mteb`, write the scores of any system in the format of MTEB's results instead; with `--run`, write its run
    as one file in TREC's format.

    Args:
        model: a dual encoder.
        files: FILE.yaml … laid upon config/config.yaml, as Snakemake's `--configfile`.
        out: the folder, or the file of a run.
        index: one of `indexes:` instead of all vectors (flat).
        texts: include the passages' texts.
        mteb: write scores on the dataset, or on every dataset of a group.
        run: write a run, on any split.
        split: of the run, instead of the reported split.
        dataset: instead of the configuration's `dataset`.
    """
    names, paths = split_files([model, *files])
    if len(names) != 1:
        raise UserError(f"{len(names)} words are not YAML files; say one model")
    configuration = choose_configuration(configurations, paths, "exported").on_dataset(dataset)
    system = f"{names[0]}@{index}" if index else names[0]
    if split and not run:
        raise UserError("--split: only a run is of a split; say --run too, or leave it out")
    if run:
        if texts or mteb:
            raise UserError(
                f"--{'texts' if texts else 'mteb'}: a run is written alone; leave it or --run out"
            )
        export_run(configuration, system, split, out)
        return
    if mteb:
        if texts:
            raise UserError("--texts: scores have no texts; leave it or --mteb out")
        with create_folder(out) as draft:
            tasks = write_results(configuration, system, draft)
        print(f"{out}: {system} on {', '.join(tasks)}; MTEB reads it as ResultCache({str(out)!r})")
        return
    plan = configuration.plan()
    searched = resolve_system(plan, system)
    if (
        searched.declared.scoring.by != "dual"
        or searched.upstream["passages"].declared.vectors != "text"
    ):
        raise UserError(
            f"{system} has no single vector a passage; only such vectors can be exported as an index"
        )
    require_built(find_part(searched).needs.values(), system, configuration)
    with create_folder(out) as draft:
        fill(draft, system, searched, plan.split, texts)
    print(f"{out}: {system}; how to search it is in {out / 'README.md'}")


def export_run(configuration: Configuration, system: str, split: str | None, out: Path) -> None:
    """Write a system's run to a new file in TREC's format, like the `run.trec` that a stage may write."""
    plan = configuration.plan()
    require_system(plan, system)
    stage = plan.planner.run(system, split or plan.split, "the system")
    require_given_lists(stage)
    needed = [stage, stage.upstream["dataset"]]
    require_counted_split(needed[1], split or plan.split)
    require_built(needed, system, configuration)
    if out.exists():
        raise UserError(f"{out}: exists already; name another file, or remove it")
    ranking, dataset = (open_artifact(Path(each.folder)) for each in needed)
    say(f"export {ranking.key} · {ranking.manifest.facts['lines']:,} lines")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with draft_file(out) as draft:
            write_trec(draft, iter_ranking(ranking, dataset), ranking.key)
    except OSError as error:
        raise UserError(f"{error.filename or out}: cannot be written: {error.strerror}") from None
    print(f"{out}: the run of {system} on {split or plan.split}")


def require_counted_split(dataset: Stage, split: str) -> None:
    """Refuse a split that a built dataset lacks; before it is built, its splits may be unknown."""
    if not Path(dataset.manifest).is_file():
        return
    counted = open_artifact(Path(dataset.folder)).manifest.facts["queries"]
    if split not in counted:
        raise UserError(
            f"--split: {split} is not a split of dataset {dataset.dataset}{nearest(split, counted)}"
        )


@contextmanager
def create_folder(folder: Path) -> Iterator[Path]:
    """Yield a folder to write into, which gets its name when it is complete; refuse a path that is not empty."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UserError(
            f"{folder}: exists already and is not an empty folder; name another, or remove it"
        )
    try:
        remove_abandoned(folder.absolute())
        with replacing(folder.absolute()) as draft:
            draft.mkdir(parents=True)
            with hold(draft):
                yield draft
    except OSError as error:
        raise UserError(
            f"{error.filename or folder}: cannot be written: {error.strerror}"
        ) from None


def fill(folder: Path, system: str, run: Stage, split: str, texts: bool) -> None:
    """Write everything into an empty folder; the first query of `split` is the example."""
    needs = {
        role: open_artifact(Path(stage.folder)) for role, stage in find_part(run).needs.items()
    }
    require_pieces(needs["tokens"], "transformers")
    passages, collection = Embeddings(needs["passages"], "passages"), Collection(needs["dataset"])
    dual = DualShape.read(needs["model"].folder / "dual")
    if dual.dense:
        raise UserError(
            f"{system} has linear layers behind its pooling, which transformers alone does not compute"
        )
    say(f"export {system} · {passages.rows:,} passages")
    shutil.copytree(needs["model"].folder / "dual", folder / "dual")
    with open(folder / IDS, "w", encoding="utf-8", newline="\n") as file:
        for number, batch in enumerate(collection.batches(columns=["doc_id"])):
            file.write(("\n" if number else "") + "\n".join(batch["doc_id"].to_pylist()))
    if texts:
        shutil.copyfile(needs["dataset"].path(CORPUS), folder / TEXTS)
    files, factory = [FLAT], "Flat"
    if "index" in needs:
        if SIGN_INDEX in needs["index"].manifest.facts["factory"]:
            raise UserError(
                f"{system}: FAISS alone would rank by signs, without exact scores; name another index"
            )
        meta = json.loads(needs["index"].path("meta.json").read_text())
        for name in needs["index"].manifest.files.keys() - {"meta.json"}:
            shutil.copyfile(needs["index"].path(name), folder / name)
        files, factory = [entry["file"] for entry in meta["indexes"]], meta["factory"]
    else:
        with Progress(f"export {system}", passages.rows, "passages") as progress:
            write_flat(folder / FLAT, passages, progress)
    template = Tokens.open(needs["tokens"]).template
    special = template.extra[0]
    query, passage = (
        needs["tokens"].params[f"{side}_length"] + special for side in ("query", "passage")
    )
    prompt = dual.prompts.get("query", "")
    tower = folder / "dual" / ("shared" if dual.shared else "query")
    names = load_tokenizer(tower).all_special_tokens
    model_card = Path("dual", "shared" if dual.shared else "", "README.md")
    page = render_markdown(
        PAGE,
        system=system,
        dual=dual,
        card=model_card if (folder / model_card).is_file() else None,
        titled=template.titled,
        pool=POOLING_CODE[dual.pooling],
        prompt=f"{json.dumps(prompt, ensure_ascii=False)} + " if prompt else "",
        plain=not any(name in prompt for name in names),
        query_tokens=query,
        passage_tokens=passage,
        passages=passages.rows,
        precision=needs["passages"].manifest.facts["precision"],
        dtype=passages.dtype,
        indexes=files,
        factory=factory,
        copies=COPIES_FILE if (folder / COPIES_FILE).exists() else None,
        tuned={TUNED[key]: value for key, value in run.values.items() if key in TUNED and value},
        texts=texts,
        normalize=needs["dataset"].params_as(DatasetParams).normalize,
        query=repr(next(iter(collection.queries(split).values()))),
        lineage={role: artifact.key for role, artifact in needs.items()},
    )
    write_text(folder / "README.md", fit_auto_class(page, tower))


def write_flat(path: Path, passages: Embeddings, progress: Progress) -> None:
    """Write the passages in float32, block by block, as `faiss.write_index` writes an `IndexFlatIP` of them."""
    rows, dimension = passages.rows, passages.dimension
    with open(path, "wb") as file:
        file.write(
            HEADER.pack(
                MARK, dimension, rows, UNUSED, UNUSED, True, INNER_PRODUCT, rows * dimension
            )
        )
        for _, vectors in passages.iterate_blocks():
            file.write(np.ascontiguousarray(vectors, "<f4").data)
            progress.add(len(vectors))


def write_results(configuration: Configuration, system: str, folder: Path) -> list[str]:
    """Write a system's results on the configuration's dataset, or on all of a group; return the names of the tasks.

    Raises:
        UserError: a dataset is not a task of MTEB, two datasets are the same task, or a run is not built.
    """
    plan = configuration.plan()
    ctx = plan.planner.ctx
    require_system(plan, system)
    whole = plan.planner.score(system, "the system")
    scores = {score.dataset: score for score in split_groups([whole])}
    tasks = {name: describe_task(ctx, name) for name in scores}
    _require_different(tasks)
    needed = [stage.upstream[role] for stage in scores.values() for role in ("dataset", "run")]
    for stage in scores.values():
        require_given_lists(stage.upstream["run"])
    require_built(needed, system, configuration)

    results = []
    for name, score in scores.items():
        depth = min(run_depth(ctx, score.values["split"], name), find_own_depth(score))
        languages = list_languages(ctx, name)
        results.append(gather_task_result(tasks[name], score, depth, languages))

    model = {"name": f"tandem/{system}", "revision": whole.digest}
    place = folder / "results" / model["name"].replace("/", "__") / model["revision"]
    joined = join_subsets(results)
    for task_name, result in joined.items():
        write_json(place / f"{task_name}.json", result)
    write_json(place / "model_meta.json", model | UNKNOWN)
    return list(joined)


def _require_different(tasks: dict[str, MtebTask]) -> None:
    """Refuse two datasets that are the same subset and split of a task: one would take the other's place."""
    seen: dict[tuple[str, str, str], str] = {}
    for name, task in tasks.items():
        other = seen.setdefault((task.task, task.subset, task.split), name)
        if other != name:
            same = f"{task.task}, subset {task.subset}, split {task.split}"
            raise UserError(f"datasets.{name}.mteb is {same}, as that of datasets.{other}")


def join_subsets(results: Iterable[Json]) -> dict[str, Json]:
    """Return the result of each task, by its name, with the scores on all of its subsets and splits."""
    joined: dict[str, Json] = {}
    for result in results:
        of_task = joined.setdefault(result["task_name"], result)
        if of_task is not result:
            for split, subsets in result["scores"].items():
                of_task["scores"].setdefault(split, []).extend(subsets)
    return joined


def count_judged(qrels: Qrels) -> int:
    """Return the number of queries that MTEB averages over: a query without a relevant passage counts, with value 0.

    `EXCLUDED` is a mark of this project and not a judgement of a task.
    """
    return sum(any(grade != EXCLUDED for grade in grades.values()) for grades in qrels.values())


def find_own_depth(score: Stage) -> float:
    """Return the depth of a scored run if a key of its own sets it, as for a fusion; inf if there is no such key."""
    run = find_first_stage(score.upstream["run"])
    return float(run.values["depth"]) if run.declared.scoring.depth_key else math.inf


def describe_task(ctx: Context, name: str) -> MtebTask:
    """Return the task of MTEB that a dataset represents; refuse a dataset that differs from its task."""
    entry, at = ctx.dataset_entry(name), f"datasets.{name}"
    if entry.mteb is None:
        raise UserError(
            f"{at}.mteb is missing; say which task of MTEB it is: mteb: {{task: …, split: test}}"
        )
    if entry.relevance == "answers":
        raise UserError(f"{at}.relevance is answers; the tasks of MTEB are scored by qrels")
    reported, own = reported_split(ctx, name), find_task_split(ctx, name)
    if reported != own:
        key = "score.split" if ctx.settings.score.split else f"{at}.score_split"
        raise UserError(
            f"{key} is {reported}, but split {entry.mteb.split} of the task {entry.mteb.task} is {own} here; leave it"
            f" out, or say which split {reported} is there: {at}.score_split and {at}.mteb.split"
        )
    for key in (*CUT.get(reported, ()), "near_duplicates"):
        value = getattr(entry, key)
        if value is not None:
            raise UserError(
                f"{at}.{key} is {value}, which the task {entry.mteb.task} is not; set it to null"
            )
    return entry.mteb


def find_task_split(ctx: Context, name: str) -> str:
    """Return the dataset's own split that is the task's `mteb.split`: the one that is reported without `score.split`.

    If the task comes from a catalogue, it is the split that the catalogue's entry reports.
    """
    entry = ctx.dataset_entry(name)
    split = entry.score_split
    shipped = shipped_entries(ROOT, "datasets").get(name, {})
    if "mteb" in shipped and entry.mteb == MtebTask.model_validate(shipped["mteb"]):
        split = shipped.get("score_split")
    return split or usual_split(ctx, name)


def list_languages(ctx: Context, name: str) -> list[str]:
    """Return the languages of a dataset in MTEB's notation."""
    entry = ctx.dataset_entry(name)
    if entry.mteb and entry.mteb.languages:
        return list(entry.mteb.languages)
    if entry.language != "en":
        raise UserError(
            f"datasets.{name}.mteb.languages is missing; say it as MTEB does, such as deu-Latn"
        )
    return ["eng-Latn"]


def gather_task_result(task: MtebTask, score: Stage, depth: float, languages: list[str]) -> Json:
    """Return MTEB's `TaskResult` of the run that the stage `score` scores, for cutoffs up to `depth`."""
    keys: dict[str, str] = {}
    for k in CUTOFFS:
        if k <= depth:
            keys |= {f"{key}_at_{k}": f"{name}@{k}" for key, name in MEASURES.items()}
    if task.main_score not in keys:
        raise UserError(
            f"mteb.main_score is {task.main_score}, but runs are {depth:g} deep; known: {', '.join(keys)}"
        )
    inputs = {role: open_artifact(Path(score.upstream[role].folder)) for role in ("dataset", "run")}
    params = ScoreParams.model_validate({**score.values, "measures": list(keys.values())})
    result, *_ = score_run(Job("score", Path(score.folder), params, inputs))
    judged = count_judged(Collection(inputs["dataset"]).qrels(params.split))
    totals = result.values.sum(axis=0)
    means = dict(zip(keys, (totals / judged).round(6).tolist(), strict=True))
    values = {**means, "accuracy": means["recall_at_1"], "main_score": means[task.main_score]}
    return {
        "dataset_revision": f"tandem-{inputs['dataset'].manifest.facts['checksum']}",
        "task_name": task.task,
        "mteb_version": None,
        "scores": {task.split: [{**values, "hf_subset": task.subset, "languages": languages}]},
        "evaluation_time": None,
        "kg_co2_emissions": None,
        "date": datetime.fromisoformat(inputs["run"].manifest.finished).timestamp(),
    }
