"""Engines of a researcher's own file through the graph: every job has its plugins and those of what it reads."""

import csv
import json
import os

import pytest
import tiny_project
import yaml
from tiny_project import LAYOUT, run_command, snakemake, tiny_config, write_beir

ENGINES = '''
from tandem.config.retrieval import lexical_engine, search_engine
from tandem.data.collection import Collection
from tandem.plan.context import checks_variant, plans_lexical_index
from tandem.stages import Kind, Params, register_stage
from tandem.store.job import writing


class WordSets(Params):
    """Passages as sets of words."""


def run_word_sets(job):
    with writing(job):
        pass


register_stage(Kind("words", run_word_sets, WordSets, holds="lexical index"), in_runs=False)


@plans_lexical_index("words")
def plan_words(ctx, variant, at, params, data):
    return {}


@checks_variant("words")
def check_words(variant, at):
    pass


@lexical_engine("words")
class SharedWords:
    """Scores a passage by k1 for each word that it shares with the query."""

    facts = {}

    def __init__(self, job):
        rows = Collection(job.inputs["dataset"]).batches(columns=["doc_id", "text"])
        self.passages = [row for batch in rows for row in batch.to_pylist()]

    def search(self, queries, k1, b, depth, progress):
        for query, text in queries:
            words = set(text.split())
            scores = {
                row["doc_id"]: k1 * len(words & set(row["text"].split())) for row in self.passages
            }
            best = sorted(scores, key=lambda doc: (-scores[doc], doc))[:depth]
            yield query, best, [scores[doc] for doc in best]
            progress.add(1)

    def close(self):
        pass


@search_engine("shared_words")
def open_engine():
    from tandem.retrieval.faiss_search import open_faiss_engine

    print("searched by a file of one's own")
    return open_faiss_engine()
'''


@pytest.fixture(scope="module")
def project(tmp_path_factory, encoder_folder, documents):
    """A finished table of BM25, a tuned variant and exact search, all by engines of a plugin."""
    folder = tmp_path_factory.mktemp("engines")
    (folder / "engines.py").write_text(ENGINES)
    write_beir(folder / "beir", documents, ("train", "dev", "test"))
    rows = [{"system": run, "run": run} for run in ("bm25", "chosen", "plain")]
    (folder / "mine.yaml").write_text(
        yaml.safe_dump({"title": "Mine", "columns": LAYOUT["columns"], "rows": rows})
    )
    config = tiny_config(folder, encoder_folder) | {
        "plugins": [str(folder / "engines.py")],
        "bm25": {"engine": "words", "tune": {"k1": [1.0, 2.0], "b": [0.5]}},
        "sparse": {"chosen": {"tuned": True}},
        "encoders": {"plain": {"source": "folder", "path": str(encoder_folder), "pooling": "mean"}},
        "execution": {"engine": "shared_words"},
        "tables": [str(folder / "mine.yaml")],
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    code, output = run_command(
        snakemake(folder, ["mine"]), env=os.environ | tiny_project.variables_of_stages()
    )
    assert code == 0, output
    return folder


def test_all_stages_run_that_need_the_file(project):
    with (project / "results/tables/mine.csv").open() as file:
        systems = dict.fromkeys(row["system"] for row in csv.DictReader(file))
    assert [*systems] == ["bm25", "chosen", "plain"]
    (log,) = project.glob("results/tiny/retrieve/*/log.txt")
    assert "searched by a file of one's own" in log.read_text()


def test_only_the_index_has_the_file_in_its_key(project):
    manifests = [json.loads(path.read_text()) for path in project.glob("results/*/*/*/stage.json")]
    loading = {each["kind"] for each in manifests if each["execution"].get("plugins")}
    assert loading >= {"words", "bm25", "tune_bm25", "score", "retrieve"}
    assert "tokens" not in loading
    named = {each["kind"] for each in manifests if each["params"].get("plugins")}
    assert named == {"words"}


def test_the_index_answers_new_queries(project):
    words = ["-m", "tandem", "search", "bm25", "otter", "config.yaml", "--json"]
    code, output = run_command([snakemake(project, [])[0], *words], cwd=project)
    assert code == 0, output
    answer = json.loads(next(line for line in output.splitlines() if line.startswith("{")))
    scores = [passage["score"] for passage in answer["passages"][:2]]
    assert scores == pytest.approx([0.9, 0.9])
