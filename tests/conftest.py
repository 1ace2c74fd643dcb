"""A tiny encoder, tiny models and runs over the tiny collection, made by the real stages; shared by all tests."""

import copy
import fcntl
import gc
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterable
from contextlib import ExitStack, chdir
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from unittest.mock import patch

import pytest
import yaml
from tiny_encoders import FAMILIES, SIZE
from tiny_project import (
    ROOT,
    Project,
    passages,
    put,
    run_here,
    snakemake,
    write_collection,
    write_qrels_folder,
)

from tandem.cluster.threads import WAITING
from tandem.data.runs import write_run
from tandem.extras.absent_lines import write_whole_run
from tandem.extras.running.warm_server import serve_warm
from tandem.stages import KINDS
from tandem.store.artifact import Artifact, open_artifact
from tandem.store.files import write_json
from tandem.store.job import Job, plain, writing

gc.disable()  # until all is imported and collected
# tests compare on the CPU; set it for those of CUDA's kernels
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
WHOLE = {"build_once", "snakemake_in"}  # fixtures that make whole graphs, or run Snakemake
# Files, tests of files, and, where a line ends in [, tests of many cases of which the first alone is quick.
SLOW = {*(Path(__file__).parent / "slow.txt").read_text().splitlines()}


def runs_graphs(item):
    """Whether a test makes whole graphs, as its file, its folder or its fixtures say."""
    return (
        "_dag" in item.path.stem
        or item.path.parent.name in ("faults", "slurm")
        or WHOLE & {*item.fixturenames}
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark tests of whole graphs, and those of slow.txt, `slow`.

    Side by side (`pytest -n`) the longest come first: what ends last is short. While one process makes the whole graph,
    the others have tests that need not wait for it.
    """
    before = ""
    for item in items:
        test = item.nodeid.split("[")[0]
        names = {test, test.split("::")[0], *([f"{test}["] if test == before else [])}
        if runs_graphs(item) or names & SLOW:
            item.add_marker("slow")
        before = test
    if hasattr(config, "workerinput"):
        items.sort(
            key=lambda item: (
                not runs_graphs(item),
                item.path.stem != "test_dag",
                "tiny_dag" in item.fixturenames,
                item.get_closest_marker("slow") is None,
            )
        )


@pytest.hookimpl(trylast=True)
def pytest_collection_finish():
    """Leave what is imported and collected out of every search for garbage: it stays."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def warm():
    """Stages of the Snakemake that `run_here` runs begin with their libraries imported, as under `tandem run`.

    How threads wait is decided, since it would depend on what else computes. The servers start when Snakemake is run
    first, as if this session had just begun: importing their libraries takes a dozen seconds of a core.
    """
    decided = {"GOMP_SPINCOUNT": WAITING["GOMP_SPINCOUNT"]}
    environment, folder = os.environ | decided, os.getcwd()
    with ExitStack() as servers:

        @cache
        def start() -> dict[str, str]:
            with chdir(folder):
                return decided | servers.enter_context(serve_warm(environment))

        with patch("tiny_project.variables_of_stages", start):
            yield


@pytest.fixture(scope="session")
def real():
    """`real(name)`: the folder of real data `../shared/data/<name>`; the test is skipped where it is absent."""

    def find(name: str) -> Path:
        folder = ROOT / ".." / "shared" / "data" / name
        if not folder.is_dir():
            pytest.skip(f"real data not here: {folder}")
        return folder

    return find


@pytest.fixture
def beir(tmp_path):
    """`beir(name, splits)`: a BEIR folder of one passage and one query, with qrels of some splits."""
    return lambda name, splits: write_qrels_folder(tmp_path / name, name, splits)


@pytest.fixture
def unignored():
    """Signals act as in a terminal, though `nohup` and a shell's `&` have processes ignore some."""
    actions = {signal.SIGHUP: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    before = {number: signal.signal(number, action) for number, action in actions.items()}
    yield
    for number, action in before.items():
        signal.signal(number, action)


@pytest.fixture(scope="session")
def make_collection(make_job):
    """`make_collection(out, passages, queries, qrels)`: a dataset of (id, title, text), (id, text, split) and
    (query, document, relevance, split)."""

    import pyarrow as pa
    import pyarrow.parquet as pq

    from tandem.data import tables
    from tandem.store.artifact import open_artifact
    from tandem.store.files import write_json
    from tandem.store.job import writing

    def make(out, passages, queries, qrels=()):
        job = make_job("dataset", out, {"source": "written by a test"})
        with writing(job) as draft:
            parts = ("corpus", passages), ("queries", queries), ("qrels", qrels)
            for name, rows in parts:
                schema = getattr(tables, f"{name.upper()}_SCHEMA")
                columns = zip(*rows, strict=True) if rows else [[] for _ in schema]
                pq.write_table(
                    pa.table(list(columns), schema=schema), draft.path(f"{name}.parquet")
                )
            write_json(draft.path("statistics.json"), {})
        return open_artifact(out)

    return make


@pytest.fixture
def plan_of(configured):
    """`plan_of(datasets, dataset, …)`: the default's plan with these datasets, and with more keys."""
    from tandem.plan.plan import Plan

    def make(datasets, dataset, **more):
        return Plan(configured() | {"datasets": datasets, "dataset": dataset} | more, ROOT)

    return make


@pytest.fixture
def plan_sparse(configured):
    """`plan_sparse(sparse, **bm25)`: the default's plan with variants, and with other keys of `bm25`."""
    from tandem.plan.plan import Plan

    def make(sparse, **bm25):
        return Plan(configured() | {"sparse": sparse, "bm25": bm25}, ROOT)

    return make


@pytest.fixture(scope="session")
def configured():
    """`configured()`: a copy of the default configuration; `configured(path, value)`: with one key set, a.b.c."""
    default = yaml.safe_load((ROOT / "config/config.yaml").read_text())

    def make(path: str = "", value: object = None) -> dict:
        config = copy.deepcopy(default)
        if path:
            put(config, path.split("."), value)
        return config

    return make


@pytest.fixture(scope="session")
def overridden():
    """`overridden(config, {a/b/c: value, …})`: the configuration with these keys set; names may hold dots."""

    def override(config: dict, keys: dict) -> dict:
        for path, value in keys.items():
            put(config, path.split("/"), value)
        return config

    return override


@pytest.fixture(scope="session")
def snakemake_in():
    """`snakemake_in(folder, more)`: a function that runs Snakemake there with its config.yaml and further files.

    It takes the words of the command line, gives status and output, and has the `folder`.
    """

    def of(folder: Path, *more: str):
        def run(*words: str) -> tuple[int, str]:
            return run_here(snakemake(folder, words, ("config.yaml", *more)))

        run.folder = folder
        return run

    return of


@pytest.fixture(scope="session")
def documents() -> list[tuple[str, str, str]]:
    """The tiny corpus: (id, title, text) of 60 passages about 20 subjects."""
    return passages()


@pytest.fixture(scope="session")
def make_job():
    """`make_job(kind, out, params, inputs, execution)`; inputs are artifacts or their folders."""

    def make(
        kind: str,
        out: Path,
        params: dict,
        inputs: dict | None = None,
        execution: dict | None = None,
    ) -> Job:
        opened = {
            role: source if isinstance(source, Artifact) else open_artifact(Path(source))
            for role, source in (inputs or {}).items()
        }
        return Job(kind, Path(out), params, opened, execution or {})

    return make


@pytest.fixture(scope="session")
def command():
    """The words of a stage's command line (after `python -m tandem <stage>`) for a job."""

    def flat(prefix: str, params: dict) -> list[str]:
        words = []
        for name, value in params.items():
            deeper = isinstance(value, dict)
            words += (
                flat(f"{prefix}.{name}", value)
                if deeper
                else [f"{prefix}.{name}", json.dumps(value)]
            )
        return words

    def make(job: Job, out: str = "stage.json") -> list[str]:
        inputs = [
            word
            for role, artifact in job.inputs.items()
            for word in (f"--in.{role}", str(artifact.folder))
        ]
        return [
            *flat("--params", plain(job.params)),
            *inputs,
            *flat("--run", job.execution.model_dump(mode="json", exclude_unset=True)),
            "--out",
            str(job.out / out),
        ]

    return make


@pytest.fixture(scope="session")
def results(tmp_path_factory) -> Path:
    """The folder of the tiny dataset's artifacts; a test that changes artifacts makes its own."""
    return tmp_path_factory.mktemp("results") / "tiny"


@pytest.fixture(scope="session")
def make_dataset(make_job):
    """`make_dataset(out, passages, unjudged=0)`: a dataset artifact of passages (id, title, text)."""

    def make(out: Path, documents: list[tuple[str, str, str]], unjudged: int = 0) -> Artifact:
        job = make_job("dataset", out, {"source": "written by a test"})
        with writing(job) as draft:
            write_collection(draft.folder, documents, unjudged)
        return open_artifact(job.out)

    return make


@pytest.fixture(scope="session")
def write_ranked(make_job):
    """`write_ranked(kind, out, params, inputs, lists)`: a run artifact of (query, documents, scores)."""

    def make(
        kind: str, out: Path, params: dict, inputs: dict, lists: Iterable, keep_absent: bool = False
    ) -> Artifact:
        job = make_job(kind, out, params, inputs)
        with writing(job) as draft:
            (write_whole_run if keep_absent else write_run)(job, draft, lists)
        return open_artifact(job.out)

    return make


@pytest.fixture(scope="session")
def dataset(results, make_dataset) -> Artifact:
    """60 passages, 20 queries in each of train, dev and test."""
    return make_dataset(results / "dataset" / "tiny-0000000001", passages())


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory) -> Path:
    """A BERT of 2 layers and 32 dimensions with random weights, and a WordPiece tokenizer of the tiny corpus."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizer

    folder = tmp_path_factory.mktemp("encoder")
    # Learned once from the texts of `tiny_project`, as tests/contrib/pretraining/test_vocabulary.py says.
    pieces = (
        (Path(__file__).parent / "tiny_vocabulary.txt").read_text(encoding="utf-8").splitlines()
    )
    tokenizer = BertTokenizer(vocab={piece: number for number, piece in enumerate(pieces)})
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=96,
        pad_token_id=tokenizer.pad_token_id,
        initializer_range=0.3,  # texts far enough apart for a ranking to mean something
    )
    with torch.random.fork_rng():
        torch.manual_seed(7)
        BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def encoder(results, make_job, encoder_folder) -> Artifact:
    """The tiny encoder as an artifact, by the stage itself."""
    from tandem.models.published import run

    job = make_job(
        "encoder",
        results / "encoder" / "tiny-0000000002",
        {"source": "folder"},
        {},
        {"path": str(encoder_folder)},
    )
    run(job)
    return open_artifact(job.out)


@pytest.fixture(scope="session")
def make_tokens(make_job, encoder):
    """`make_tokens(out, dataset)`: token ids of a dataset by the tiny encoder's tokenizer, by the stage itself."""
    from tandem.models.tokenisation import run

    def make(
        out: Path, dataset: Artifact, query_length: int = 16, passage_length: int = 24
    ) -> Artifact:
        params = {"query_length": query_length, "passage_length": passage_length}
        run(make_job("tokens", out, params, {"dataset": dataset, "encoder": encoder}))
        return open_artifact(out)

    return make


@pytest.fixture(scope="session")
def tokens(results, make_tokens, dataset) -> Artifact:
    """Token ids of the tiny dataset: at most 16 a query, 24 a passage."""
    return make_tokens(results / "tokens" / "tiny-0000000003", dataset)


@pytest.fixture(scope="session")
def make_model(make_job, encoder):
    """`make_model(out, parts, seed, shared=…)`: an untrained model artifact with `dual/`, `cross/` or both.

    The weights are the tiny encoder's with a little noise drawn from the seed, so that no two towers are alike.
    """
    import torch

    from tandem.config.representations import representation
    from tandem.models.cross import CrossEncoder
    from tandem.models.hub import load_tokenizer

    def make(
        out: Path, parts: tuple[str, ...] = ("dual",), seed: int = 0, **dual: object
    ) -> Artifact:
        pooling = str(dual.get("pooling", "cls"))
        folder = encoder.folder / "hf"
        tokenizer = load_tokenizer(folder)
        params = {"shared": False, "pooling": "cls", "normalize": False, "temperature": 1.0} | dual
        objective = "joint" if len(parts) == 2 else parts[0]
        towers = representation[params.get("representation", {}).get("type", "single")]
        recipe = {"objective": objective, "train": {"seed": seed}, **params}
        job = make_job("model", out, recipe, {"encoder": encoder})
        with torch.random.fork_rng(), writing(job) as draft:
            torch.manual_seed(seed)
            for part in parts:
                model = (
                    towers.start(folder, **params)
                    if part == "dual"
                    else CrossEncoder.start(folder, pooling)
                )
                with torch.no_grad():
                    for parameter in model.parameters():
                        parameter += (
                            0.1 * parameter.std() * torch.randn_like(parameter)
                            if parameter.dim() > 1
                            else 0
                        )
                model.save(draft.folder / part, tokenizer)
            write_json(draft.path("model.json"), {"objective": objective})
        return open_artifact(job.out)

    return make


@pytest.fixture(scope="session")
def new_generator(make_job, encoder, results) -> Artifact:
    """A T5 of one layer with the tiny encoder's vocabulary and vectors of words."""
    params = {"layers": 1, "decoder_layers": 1, "heads": 4, "feed_forward": 64, "seed": 3}
    job = make_job(
        "new_generator", results / "new_generator" / "t5-0000000001", params, {"encoder": encoder}
    )
    resolve_name(f"tandem.{KINDS[job.kind].run}")(job)
    return open_artifact(job.out)


@pytest.fixture(scope="session")
def encoder_decoder(make_job, encoder, results) -> Artifact:
    """The tiny encoder's two layers, and a decoder of its first one."""
    params = {"decoder_layers": 1, "seed": 3}
    out = results / "encoder_decoder" / "bert-0000000001"
    job = make_job("encoder_decoder", out, params, {"encoder": encoder})
    resolve_name(f"tandem.{KINDS[job.kind].run}")(job)
    return open_artifact(job.out)


@pytest.fixture(scope="session")
def dual_model(results, make_model) -> Artifact:
    """A dual encoder of two towers, CLS pooling."""
    return make_model(results / "model" / "de-0000000004", ("dual",), seed=4)


@pytest.fixture(scope="session")
def cross_model(results, make_model) -> Artifact:
    """A cross-encoder."""
    return make_model(results / "model" / "ce-0000000005", ("cross",), seed=5)


@pytest.fixture(scope="session")
def joint_model(results, make_model) -> Artifact:
    """A dual encoder with one mean-pooled tower, and a cross-encoder."""
    return make_model(
        results / "model" / "joint-0000000006",
        ("dual", "cross"),
        seed=6,
        shared=True,
        pooling="mean",
    )


@pytest.fixture(scope="session")
def build_once(tmp_path_factory):
    """`build_once(name, make)`: a folder that `make(folder)` fills.

    Where tests run side by side (`pytest -n`), the first process that asks fills it and the others take a copy.
    """

    def of(name: str, make: Callable[[Path], None]) -> Path:
        folder, together = tmp_path_factory.mktemp(name), tmp_path_factory.getbasetemp()
        if "PYTEST_XDIST_WORKER" not in os.environ:
            make(folder)
            return folder
        finished, partial = together.parent / name, together.parent / f"{name}.partial"
        with (together.parent / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if finished.is_dir():
                return shutil.copytree(finished, folder, dirs_exist_ok=True)
            make(folder)
            shutil.copytree(folder, partial)
            partial.rename(finished)
        return folder

    return of


@pytest.fixture(scope="session")
def tiny_dag(build_once, encoder_folder, documents):
    """The whole graph, run once on the tiny collection by Snakemake; who damages it takes a copy."""

    def make(folder: Path) -> None:
        code, output = Project(folder, encoder_folder, documents).run()
        assert code == 0, output

    return Project.at(build_once("tiny_dag", make))


@pytest.fixture(scope="session")
def family_folder(tmp_path_factory, documents):
    """`family_folder(family)`: a folder with a tiny encoder of random weights and a tokenizer of the tiny corpus."""
    import torch
    import transformers

    folders = {}

    def tokenizer_of(name):
        texts = [f"{title} {text}" for _, title, text in documents] + ["what does the lynx eat"]
        trained = getattr(transformers, name or "DistilBertTokenizer")().train_new_from_iterator(
            texts, 400
        )
        if name:
            return trained
        special = {
            "cls_token": "[CLS]",
            "sep_token": "[SEP]",
            "pad_token": "[PAD]",
            "unk_token": "[UNK]",
        }
        names = ["input_ids", "attention_mask"]
        return transformers.PreTrainedTokenizerFast(
            tokenizer_object=trained.backend_tokenizer, model_input_names=names, **special
        )

    def make(family):
        if family in folders:
            return folders[family]
        config, tokenizer, options = FAMILIES[family]
        folder, words = tmp_path_factory.mktemp(family), tokenizer_of(tokenizer)
        ids = {
            f"{name}_token_id": getattr(words, f"{name}_token_id")
            for name in ("pad", "bos", "eos", "cls", "sep")
        }
        made_config = getattr(transformers, config)(vocab_size=len(words), **SIZE, **ids, **options)
        with torch.random.fork_rng():
            torch.manual_seed(11)
            transformers.AutoModel.from_config(made_config).save_pretrained(folder)
        words.save_pretrained(folder)
        folders[family] = folder
        return folder

    return make


@pytest.fixture(scope="session")
def titled(tmp_path_factory, make_job, dataset, encoder):
    """Token ids with titles as a segment, 24 tokens a passage with the separator; a pair has 20 in all."""
    from tandem.models.tokenisation import run

    params = {"query_length": 16, "passage_length": 24, "titled": True, "pair_length": 20}
    out = tmp_path_factory.mktemp("tokens") / "titled-0000000001"
    job = make_job("tokens", out, params, {"dataset": dataset, "encoder": encoder})
    run(job)
    return open_artifact(job.out)
