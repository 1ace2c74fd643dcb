"""A tiny collection, a tiny encoder and tiny models, made on the spot by the real stages; shared by all tests."""

import copy
import fcntl
import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from tiny_project import ASKED, PART, ROOT, Project, put, said, snakemake

from tandem.store.artifact import Artifact, open_artifact
from tandem.store.files import write_json
from tandem.store.job import Job, plain, writing

SUBJECTS = {
    "otter": ("a river mammal", "floats on its back", "crabs and urchins"),
    "heron": ("a wading bird", "stands still for an hour", "frogs and small fish"),
    "beaver": ("a large rodent", "fells trees for its dam", "bark and water lilies"),
    "bat": ("a flying mammal", "hears the echo of its calls", "moths and midges"),
    "lynx": ("a forest cat", "walks on snow without sinking", "hares and roe deer"),
    "mole": ("a digging mammal", "lives below the meadow", "earthworms and grubs"),
    "stork": ("a white bird", "flies to Africa in August", "mice and grasshoppers"),
    "salmon": ("a strong fish", "swims up the river to spawn", "krill and herring"),
    "badger": ("a striped mammal", "sleeps in a deep sett", "worms and roots"),
    "owl": ("a night bird", "turns its head far around", "voles and beetles"),
    "toad": ("a slow amphibian", "hides under stones by day", "slugs and ants"),
    "seal": ("a sea mammal", "rests on sand banks", "cod and flounders"),
    "wolf": ("a wild dog", "hunts in a pack", "deer and boar"),
    "crane": ("a grey bird", "dances in the spring", "maize and snails"),
    "viper": ("a shy snake", "suns itself in the morning", "lizards and mice"),
    "hare": ("a fast mammal", "turns sharply when chased", "clover and buds"),
    "eel": ("a long fish", "crosses the ocean once", "shrimps and mussels"),
    "raven": ("a clever bird", "opens bags and boxes", "carrion and eggs"),
    "bison": ("a heavy grazer", "ploughs the snow with its head", "sedges and acorns"),
    "newt": ("a small amphibian", "grows a crest in the pond", "tadpoles and fleas"),
}


def passages() -> list[tuple[str, str, str]]:
    """(id, title, text): three passages a subject, of different lengths; every third has no title."""
    rows = []
    for name, (kind, habit, food) in SUBJECTS.items():
        rows.append((f"{name}-1", f"The {name}", f"The {name} is {kind}."))
        rows.append((f"{name}-2", f"The {name}", f"Watch it for a day and you will see that the {name} {habit}."))
        rows.append((f"{name}-3", "", f"The {name} eats {food}, more of them in autumn, when winter is close; {kind}."))
    return rows


# Fixtures that make whole graphs, run Snakemake, copy the tree, or start a browser or several processes of torch.
STARTING = {"tiny_dag", "built", "snakemake_in", "tree", "tab", "opened", "together"}


def runs_graphs(item):
    """Whether a test makes whole graphs, or starts as much, as its file, its folder or its fixtures say."""
    return "_dag" in item.path.stem or item.path.parent.name in ("faults", "slurm") or STARTING & {*item.fixturenames}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark tests of whole graphs `slow`. Side by side (`pytest -n`) the longest come first: what ends last is short."""
    for item in filter(runs_graphs, items):
        item.add_marker("slow")
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: (not runs_graphs(item), item.get_closest_marker("slow") is None))


@pytest.fixture(scope="session")
def real():
    """`real(name)`: the folder of real data `../shared/data/<name>`; the test is skipped where it is absent."""

    def find(name: str) -> Path:
        folder = ROOT / ".." / "shared" / "data" / name
        if not folder.is_dir():
            pytest.skip(f"real data not here: {folder}")
        return folder

    return find


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
def snakemake_in():
    """`snakemake_in(folder, more)`: a function that runs Snakemake there with its config.yaml and further files.

    It takes the words of the command line, gives status and output, and has the `folder`.
    """

    def of(folder: Path, *more: str):
        def run(*words: str) -> tuple[int, str]:
            return said(snakemake(folder, words, ("config.yaml", *more)))

        run.folder = folder
        return run

    return of


@pytest.fixture(scope="session")
def documents() -> list[tuple[str, str, str]]:
    """The tiny corpus: (id, title, text) of 60 passages about 20 subjects."""
    return passages()


def write_collection(folder: Path, documents: list[tuple[str, str, str]], unjudged: int) -> None:
    """The Parquet files of a dataset artifact; each split asks about every subject, or for the first document.

    Behind them stand `unjudged` further test queries, q0, q1, ….
    """
    ids, titles, texts = zip(*documents, strict=True)
    pq.write_table(pa.table({"doc_id": ids, "title": titles, "text": texts}), folder / "corpus.parquet")
    queries = [(f"{split}-{name}", text.format(name), split) for split, text in ASKED.items() for name in SUBJECTS]
    queries += [(f"q{number}", "?", "test") for number in range(unjudged)]
    columns = dict(zip(("query_id", "text", "split"), zip(*queries, strict=True), strict=True))
    pq.write_table(pa.table(columns), folder / "queries.parquet")
    relevant = {(split, name): f"{name}-{PART[split]}" for split in ASKED for name in SUBJECTS}
    known = {at: doc if doc in set(ids) else ids[0] for at, doc in relevant.items()}
    qrels = [(f"{split}-{name}", doc, 1, split) for (split, name), doc in known.items()]
    columns = dict(zip(("query_id", "doc_id", "relevance", "split"), zip(*qrels, strict=True), strict=True))
    columns["relevance"] = pa.array(columns["relevance"], pa.int32())
    pq.write_table(pa.table(columns), folder / "qrels.parquet")
    write_json(folder / "statistics.json", {})


@pytest.fixture(scope="session")
def make_job():
    """`make_job(kind, out, params, inputs, execution)`; inputs are artifacts or their folders."""

    def make(kind: str, out: Path, params: dict, inputs: dict | None = None, execution: dict | None = None) -> Job:
        opened = {
            role: one if isinstance(one, Artifact) else open_artifact(Path(one)) for role, one in (inputs or {}).items()
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
            words += flat(f"{prefix}.{name}", value) if deeper else [f"{prefix}.{name}", json.dumps(value)]
        return words

    def make(job: Job, out: str = "stage.json") -> list[str]:
        inputs = [word for role, one in job.inputs.items() for word in (f"--in.{role}", str(one.folder))]
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
def dataset(results, make_dataset) -> Artifact:
    """60 passages, 20 queries in each of train, dev and test."""
    return make_dataset(results / "dataset" / "tiny-0000000001", passages())


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory) -> Path:
    """A BERT of 2 layers and 32 dimensions with random weights, and a WordPiece tokenizer of the tiny corpus."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizer

    from tandem.extras.pretraining.stage import LEAST, pieces

    folder = tmp_path_factory.mktemp("encoder")
    texts = [*(f"{title} {text}" for _, title, text in passages()), *ASKED.values()]
    learned = pieces(lambda: iter(texts * LEAST), 400, lowercase=True)  # what is seen once is a piece here, too
    tokenizer = BertTokenizer(vocab={piece: at for at, piece in enumerate(learned)})
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
    from tandem.models.hub import run

    job = make_job(
        "encoder", results / "encoder" / "tiny-0000000002", {"source": "folder"}, {}, {"path": str(encoder_folder)}
    )
    run(job)
    return open_artifact(job.out)


@pytest.fixture(scope="session")
def make_tokens(make_job, encoder):
    """`make_tokens(out, dataset)`: token ids of a dataset by the tiny encoder's tokenizer, by the stage itself."""
    from tandem.models.tokenisation import run

    def make(out: Path, dataset: Artifact, query_length: int = 16, passage_length: int = 24) -> Artifact:
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

    def make(out: Path, parts: tuple[str, ...] = ("dual",), seed: int = 0, **dual: object) -> Artifact:
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
                model = towers.start(folder, **params) if part == "dual" else CrossEncoder.start(folder, pooling)
                with torch.no_grad():
                    for parameter in model.parameters():
                        parameter += 0.1 * parameter.std() * torch.randn_like(parameter) if parameter.dim() > 1 else 0
                model.save(draft.folder / part, tokenizer)
            write_json(draft.path("model.json"), {"objective": objective})
        return open_artifact(job.out)

    return make


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
    return make_model(results / "model" / "joint-0000000006", ("dual", "cross"), seed=6, shared=True, pooling="mean")


@pytest.fixture(scope="session")
def tiny_dag(tmp_path_factory, encoder_folder, documents):
    """The whole graph, run once on the tiny collection by Snakemake; who damages it takes a copy.

    Where tests run side by side (`pytest -n`), the first process that asks makes it and the others take a copy.
    """
    folder, together = tmp_path_factory.mktemp("project"), tmp_path_factory.getbasetemp()
    together = together.parent if "PYTEST_XDIST_WORKER" in os.environ else together
    finished = together / "tiny_dag"
    with (together / "tiny_dag.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if finished.is_dir():
            return Project.at(shutil.copytree(finished, folder, dirs_exist_ok=True))
        made = Project(folder, encoder_folder, documents)
        code, output = made.run()
        assert code == 0, output
        if together != tmp_path_factory.getbasetemp():
            shutil.copytree(folder, together / "tiny_dag.partial")
            (together / "tiny_dag.partial").rename(finished)
        return made
