"""No wrong number with exit status 0, and no silence where a word is due: situations, exit status and last line.

Everything goes through the command line. What tables and the report repeat of it is in `test_validity_dag.py`.
"""

import json
import os
import shutil
import sys

import pytest
from tiny_project import run_command, run_here, write_beir

from tandem.data.collection import Collection
from tandem.models.saving import DualShape, describe_encoder
from tandem.store.artifact import open_artifact

HEADER = "query-id\tcorpus-id\tscore\n"
JUDGED = HEADER + "test-otter\totter-2\t1\n"
CHINESE = "这种药物对儿童有什么副作用，应该怎样服用？"


def tandem(*words, **environment):
    """Exit status and last line of a command; libraries read an environment when they are imported."""
    line = [sys.executable, "-m", "tandem", *map(str, words)]
    status, output = (
        run_command(line, env=os.environ | environment) if environment else run_here(line)
    )
    return status, (output.splitlines() or [""])[-1]


@pytest.fixture
def beir(tmp_path, documents):
    """A collection in BEIR's layout: 60 passages, 20 queries in each of train and test."""
    write_beir(tmp_path / "beir", documents)
    return tmp_path / "beir"


def read_folder(folder, out):
    """The command that makes a dataset of a folder in BEIR's layout."""
    return tandem(
        "dataset", "--params.source", "beir", "--run.path", folder, "--out", out / "stage.json"
    )


# file, its content, and the line that the command ends with
REFUSED = {
    "columns in the wrong order": (
        "qrels/test.tsv",
        "otter-2\ttest-otter\t1\n",
        "{0}/qrels/test.tsv:1: 1 of 1 judgements of split test name queries that {0}/queries.jsonl lacks, the first"
        " otter-2; mend the order of their columns, or give their queries",
    ),
    "mostly unknown passages": (
        "qrels/test.tsv",
        JUDGED + "test-otter\tx1\t1\ntest-otter\tx2\t1\n",
        "{0}/qrels/test.tsv:3: 2 of 3 judgements of split test name documents that the corpus lacks, the first x1;"
        " mend them, or set unknown_documents: drop",
    ),
    "no positive": (
        "qrels/test.tsv",
        HEADER + "test-otter\totter-2\t0\n",
        "qrels: none of the 1 judgements of split test is above 0; a split needs a relevant passage",
    ),
    "a contradiction": (
        "qrels/test.tsv",
        JUDGED + "test-otter\totter-2\t0\n",
        "{0}/qrels/test.tsv:3: query test-otter judges document otter-2 both 1 and 0; one is allowed",
    ),
    "a grade that is no whole number": (
        "qrels/test.tsv",
        HEADER + "test-otter\totter-2\t0.5\n",
        "{0}/qrels/test.tsv:2: relevance is '0.5'; a whole number is needed",
    ),
    "a split in upper case": (
        "qrels/Test.tsv",
        JUDGED,
        "{0}/qrels/Test.tsv: a split's judgements are <split>.tsv, packed or not, in lower case; rename or remove it",
    ),
    "a split in another format": (
        "qrels/test.txt",
        "test-otter 0 otter-2 1\n",
        "{0}/qrels/test.txt: a split's judgements are <split>.tsv, packed or not, in lower case; rename or remove it",
    ),
    "a split in two files": (
        "qrels/test.tsv.gz",
        JUDGED,
        "{0}/qrels/test.tsv.gz: split test is in test.tsv too; remove one of them",
    ),
    "lines of an old Mac": (
        "qrels/test.tsv",
        JUDGED.replace("\n", "\r"),
        "{0}/qrels/test.tsv: its lines end in carriage returns alone, as on an old Mac; end them in line feeds",
    ),
    "a passage without an id": (
        "corpus.jsonl",
        '{"text": "The otter is a river mammal."}\n',
        "{0}/corpus.jsonl:1: no id; a field named _id or id or doc_id or docid or pid or docno or document_id or"
        " passage_id is needed",
    ),
    "a passage whose id is null": (
        "corpus.jsonl",
        '{"_id": null, "text": "The otter is a river mammal."}\n',
        "{0}/corpus.jsonl:1: id is null; a text is needed",
    ),
}


@pytest.mark.parametrize("situation", REFUSED)
def test_what_a_dataset_is_refused_for(situation, beir, tmp_path):
    name, content, message = REFUSED[situation]
    (beir / name).write_text(content)
    out = tmp_path / "dataset" / "mine-0"
    assert read_folder(beir, out) == (1, f"tandem dataset: {message.format(beir)}")
    assert not (out / "stage.json").exists()


# a further line of test.tsv, and what is warned of
WARNED = {
    "unknown passages": (
        "test-otter\tx1\t1\n",
        "1 judgements name documents that the corpus lacks and are kept: no run can find them",
    ),
    "unknown queries": (
        "test-x\totter-2\t1\n",
        "1 queries of the qrels are not among the queries; their qrels are dropped",
    ),
    "grades below 0": (
        "test-otter\totter-1\t-1\n",
        "1 judgements are below 0 and count as not relevant",
    ),
}


@pytest.mark.parametrize("situation", WARNED)
def test_what_a_dataset_warns_of_and_keeps_with_it(situation, beir, tmp_path):
    line, warning = WARNED[situation]
    with open(beir / "qrels/test.tsv", "a") as qrels:
        qrels.write(line)
    status, _ = read_folder(beir, tmp_path / "dataset" / "mine-0")
    assert (status, open_artifact(tmp_path / "dataset" / "mine-0").manifest.facts["warnings"]) == (
        0,
        [warning],
    )


def test_a_header_decides_the_order_of_columns_and_1_0_is_1(beir, tmp_path):
    datasets = [tmp_path / "dataset" / name for name in ("usual-0", "turned-0")]
    (beir / "qrels/test.tsv").write_text(JUDGED)
    assert read_folder(beir, datasets[0])[0] == 0
    (beir / "qrels/test.tsv").write_text("corpus-id\tquery-id\tscore\notter-2\ttest-otter\t1.0\n")
    assert read_folder(beir, datasets[1])[0] == 0
    assert Collection(open_artifact(datasets[1])).qrels("test") == {"test-otter": {"otter-2": 1}}
    assert (datasets[0] / "qrels.parquet").read_bytes() == (
        datasets[1] / "qrels.parquet"
    ).read_bytes()


def test_english_analysis_and_an_english_encoder_of_chinese_passages(beir, encoder, tmp_path):
    rows = [{"_id": f"{name}-2", "text": CHINESE} for name in ("otter", "heron")]
    (beir / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for split in ("train", "test"):
        (beir / f"qrels/{split}.tsv").write_text(HEADER + f"{split}-otter\totter-2\t1\n")
    dataset, index, tokens = (tmp_path / kind / "mine-0" for kind in ("dataset", "bm25s", "tokens"))
    assert read_folder(beir, dataset)[0] == 0
    assert tandem("bm25s", "--in.dataset", dataset, "--out", index / "stage.json") == (
        0,
        "bm25s mine-0 · warning: the passages are analysed as en, but look like 100% zh:"
        " say the dataset's language, and perhaps its analyzer",
    )
    lengths = ["--params.query_length", 8, "--params.passage_length", 8]
    inputs = ["--in.dataset", dataset, "--in.encoder", encoder.folder]
    assert tandem("tokens", *lengths, *inputs, "--out", tokens / "stage.json") == (
        0,
        "tokens mine-0 · warning: the encoder's vocabulary is latin, but the passages are 100% cjk:"
        " choose another encoder",
    )


def test_an_encoder_of_the_hub_with_another_pooling_than_planned(encoder_folder, tmp_path):
    """The hub's files are not here when the graph is planned: the stage compares them, here in the hub's cache."""
    repository = tmp_path / "hub" / "models--org--mine"
    snapshot = shutil.copytree(encoder_folder, repository / "snapshots" / ("0" * 40))
    describe_encoder(snapshot, 32, DualShape(True, "mean", True, 0.05))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    params = ["--params.source", "hub", "--params.name", "org/mine", "--params.revision", "main"]
    words = [
        "encoder",
        *params,
        "--run.vectors",
        '{"pooling": "cls"}',
        "--out",
        tmp_path / "encoder" / "mine-0" / "stage.json",
    ]
    keys = "pooling: mean, normalize: true, temperature: 0.05"
    assert tandem(*words, HF_HUB_CACHE=str(tmp_path / "hub"), HF_HUB_OFFLINE="1") == (
        1,
        f"tandem encoder: encoder: org/mine describes {keys}; name it under encoders: "
        f"{{source: hub, name: org/mine, revision: main, {keys}}}",
    )


@pytest.fixture(scope="module")
def stage(tmp_path_factory, make_job, command):
    """`stage(kind, name, params, inputs, execution)`: status and last line of a stage's command, and its folder."""
    folder = tmp_path_factory.mktemp("results") / "tiny"

    def run(kind, name, params, inputs, execution=None):
        job = make_job(kind, folder / kind / f"{name}-0123456789", params, inputs, execution)
        return *tandem(kind, *command(job)), job.out

    return run


@pytest.fixture(scope="module")
def runs(dataset, stage, tmp_path_factory):
    """Of each split a released run of nine passages a query, two and two with one score: its own subject's first."""
    folder, collection, outs = tmp_path_factory.mktemp("released"), Collection(dataset), {}
    ids = collection.doc_ids().to_pylist()
    for split in ("train", "dev", "test"):
        rows = [
            f"{query} Q0 {ids[(3 * i + j) % 60]} {j + 1} {9 - j // 2} mine\n"
            for i, query in enumerate(collection.queries(split))
            for j in range(9)
        ]
        (folder / split).write_text("".join(rows))
        released = {"path": str(folder / split)}
        status, line, outs[split] = stage(
            "imported", f"mine.{split}", {"split": split}, {"dataset": dataset}, released
        )
        assert status == 0, line
    return outs


def test_other_tools_read_our_numbers_off_a_run_with_ties(dataset, runs, stage, tmp_path):
    measures = ["RR@10", "nDCG@10", "AP", "Success@1"]
    inputs = {"dataset": dataset, "run": runs["test"]}
    status, line, scores = stage(
        "score", "mine.test", {"measures": measures, "split": "test"}, inputs
    )
    assert status == 0, line
    means = json.loads((scores / "statistics.json").read_text())["mean"]
    qrels = Collection(dataset).qrels("test")
    rows = [
        f"{query} 0 {doc} {grade}\n"
        for query, judged in qrels.items()
        for doc, grade in judged.items()
    ]
    (tmp_path / "qrels").write_text("".join(rows))
    words = ["ir_measures", tmp_path / "qrels", runs["test"] / "run.trec", *measures]
    status, output = run_command([sys.executable, "-m", *map(str, words)])
    theirs = dict(row.split("\t") for row in output.splitlines())
    assert (status, theirs) == (0, {measure: f"{mean:.4f}" for measure, mean in means.items()})


TRAIN = {
    "steps": 6,
    "queries_per_batch": 4,
    "list_size": 4,
    "loss": "listwise",
    "precision": "fp32",
    "seed": 5,
}
TRAIN |= {"optimizer": "adamw", "dropout": 0.0, "validate_every": 6}
TOWERS = {"shared": True, "normalize": False, "temperature": 1.0}
# objective, how it is trained, and what the last line warns of
TRAININGS = {
    "one that does harm": (
        "dual",
        {"lr": 0.5, "choose": "dev"},
        "training did not help, its start is kept: dev nDCG@10 ",
    ),
    "one that does harm, and whose end counts": (
        "dual",
        {"lr": 0.5, "choose": "last"},
        "ends worse than its start (train.choose: dev keeps the better): dev nDCG@10 ",
    ),
    "a re-ranker that learns nothing": (
        "cross",
        {"lr": 1e-9, "choose": "last"},
        "ranks the dev lists worse than their first stage: nDCG@10 ",
    ),
}


@pytest.fixture(scope="module")
def lists(dataset, tokens, runs, stage):
    """Training lists from the run of the train queries."""
    params, inputs = (
        {"depth": 9, "seed": 1},
        {"dataset": dataset, "tokens": tokens, "run": runs["train"]},
    )
    status, line, out = stage("candidates", "mine", params, inputs)
    assert status == 0, line
    return out


@pytest.fixture(scope="module")
def train(dataset, tokens, encoder, lists, stage):
    """`train(name, objective, how, **inputs)`: status, last line and folder of a training."""

    def run(name, objective, how, **inputs):
        params = {"objective": objective, "pooling": "mean", "train": TRAIN | how}
        params |= TOWERS if objective == "dual" else {}
        upstream = {"dataset": dataset, "tokens": tokens, "candidates": lists, "start": encoder}
        return stage("model", name, params, upstream | inputs, {"workers": 1})

    return run


@pytest.mark.parametrize("situation", TRAININGS)
def test_what_a_training_warns_of_when_it_ends(situation, train, runs):
    objective, how, warning = TRAININGS[situation]
    name = f"{objective}_{how['choose']}"
    status, line, out = train(name, objective, how, validation=runs["dev"])
    assert (status, line[: line.find(warning)]) == (0, f"model {out.name} · warning: ")


def test_a_model_at_chance_and_that_it_denoises_nothing_as_a_judge(
    train, dataset, tokens, runs, stage
):
    status, line, judge = train(
        "ce", "cross", {"lr": 1e-9, "choose": "last", "validate_every": None}
    )
    assert (status, line.partition(" loss ")[0]) == (
        0,
        "model ce-0123456789 · warning: stays at chance: listwise",
    )
    inputs = {
        "dataset": dataset,
        "tokens": tokens,
        "run": runs["train"],
        "judge.0": judge,
        "judge_tokens.0": tokens,
    }
    denoise = {"negative_below": 0.9}
    status, line, _ = stage(
        "candidates", "denoised", {"depth": 9, "seed": 1, "denoise": denoise}, inputs
    )
    warning = "ce, which judges, stays at chance: it denoises nothing"
    assert (status, line) == (0, f"candidates denoised-0123456789 · warning: {warning}")
