"""What a dataset's entry makes of the plan: groups, pairs, variants, answers, splits, released runs."""

import gzip
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest
import yaml

from tandem.config.merging import merged
from tandem.errors import UserError
from tandem.extras.targets import KEY, list_stages_of_all
from tandem.models.saving import DualShape, describe_encoder
from tandem.plan.dataset_stages import corpus_dataset, splits
from tandem.plan.graph import read_behind_inputs, upstream_first
from tandem.plan.plan import Plan
from tandem.plan.reported import find_depth_key, run_depth
from tandem.plan.searches import encode_both_sides, search_vectors
from tandem.stages.data import DatasetParams
from tandem.stages.evaluation import ScoreParams

ROOT = Path(__file__).parents[2]


@pytest.fixture
def described_folder(encoder_folder, tmp_path):
    """`described_folder(name)`: the tiny encoder in a folder that says how its vectors are made."""

    def make(name):
        folder = shutil.copytree(encoder_folder, tmp_path / name)
        describe_encoder(folder, 32, DualShape(True, "mean", True, 0.05))
        return folder

    return make


def score(planned, system="bm25"):
    return planned.planner.score(system, "here")


def test_a_group_is_scored_on_each_member_and_averaged(beir, plan_of):
    members = {name: {"source": "beir", "path": beir(name, ["test"])} for name in ("a", "b")}
    scored = score(plan_of(members | {"both": {"source": "group", "of": ["b", "a"]}}, "both"))
    assert scored.values["members"] == ["b", "a"]
    assert [(role, stage.dataset, stage.kind) for role, stage in scored.upstream.items()] == [
        ("member.0", "b", "score"), ("member.1", "a", "score")
    ]  # fmt: skip


def test_systems_of_a_group_run_on_each_member_and_are_rows_of_its_tables(beir, plan_of):
    datasets = {name: {"source": "beir", "path": beir(name, ["test"])} for name in ("a", "b", "c")}
    datasets["inner"] = {"source": "group", "of": ["b", "c"]}
    datasets["both"] = {"source": "group", "of": ["a", "inner"]}
    more = {"systems": ["minilm"], "tables": ["baseline"]}
    planned = plan_of(datasets, "both", **more)

    runs = planned.planner.reported_runs("minilm", "systems")
    assert [(run.dataset, run.name) for run in runs] == [
        ("a", "minilm.test"),
        ("b", "minilm.test"),
        ("c", "minilm.test"),
    ]
    stages = list_stages_of_all(planned)
    assert set(runs) <= set(stages)
    (mean,) = [stage for _, stage in planned.tables["baseline"] if stage.name == "minilm.test"]
    assert [(stage.dataset, stage.kind) for stage in mean.upstream.values()] == [
        ("a", "score"),
        ("inner", "score"),
    ]
    assert planned.tables.unshown() == []


def test_datasets_that_nothing_uses_are_named(beir, plan_of):
    mine = {"mine": {"source": "beir", "path": beir("mine", ["train", "test"])}}
    line = (
        "datasets defines mine, which nothing uses; `dataset: mine` searches it instead of pydocs"
    )
    assert line in plan_of(mine, "pydocs").check("all")
    assert line not in plan_of(mine, "mine").check("all")
    # a configuration may choose one of several
    others = mine | {"other": {"source": "beir", "path": beir("other", ["train", "test"])}}
    assert not any("which nothing uses" in line for line in plan_of(others, "mine").check("all"))


@pytest.mark.parametrize(
    ("more", "key"),
    [
        (
            {"models": {"de_bm25neg": {"candidates": {"split": "test"}}}},
            "models.de_bm25neg.candidates.split is test",
        ),
        (
            {
                "fusions": {
                    "both": {"of": ["bm25", "de_bm25neg"], "k": None, "tune": {"split": "test"}}
                }
            },
            "fusions.both.tune",
        ),
        (
            {"pipelines": {"both": {"of": ["bm25", "de_bm25neg"], "split": "test"}}},
            "pipelines.both.split is test",
        ),
        (
            {"bm25": {"tune": {"split": "test"}}, "sparse": {"both": {"tuned": True}}},
            "bm25.tune.split is test",
        ),
        (
            {"score": {"split": "dev"}, "models": {"de_bm25neg": {"train": {"choose": "dev"}}}},
            "de_bm25neg.train.choose",
        ),
    ],
)
def test_what_learns_from_the_reported_queries_is_named(beir, configured, more, key):
    mine = {
        "datasets": {"d": {"source": "beir", "path": beir("d", ["train", "dev", "test"])}},
        "dataset": "d",
    }
    usual = configured() | mine
    assert not any("are optimistic" in line for line in Plan(usual, ROOT).check("all"))
    planned = Plan(
        merged(
            usual,
            more | {"systems": ["both"], "tables": ["summary"]} if "both" in str(more) else more,
        ),
        ROOT,
    )
    (line,) = [line for line in planned.check("all") if "are optimistic" in line]
    assert key in line


TUNED = {"fusions": {"both": {"of": ["bm25", "encoder"], "method": "weighted"}}}  # on dev
ON_DEV = {"system": "On dev", "run": "both", "with": {"score.split": "dev"}}
COLUMNS = {
    "columns": [{"measure": "RR@10", "dataset": "d"}, {"measure": "RR@10"}],
    "splits": {"d": {"split": "dev"}},
}
SWEEP = {"split": "dev", "grid": {"bm25.k1": [0.5, 1.0]}, "systems": ["both"]}


@pytest.mark.parametrize(
    ("layout", "more"),
    [({"rows": [ON_DEV]}, {}), (COLUMNS, {}), ({}, {"sweeps": {"mine": SWEEP}})],
)
def test_each_score_is_compared_with_what_its_own_run_was_chosen_by(
    configured, tmp_path, layout, more
):
    file = tmp_path / "mine.yaml"
    rows = [{"system": "BM25", "run": "bm25"}, {"system": "Both", "run": "both"}]
    text = {"title": "Mine", **layout, "rows": rows + layout.get("rows", [])}
    file.write_text(yaml.safe_dump(text))
    lines = Plan(configured("tables", [str(file)]) | TUNED | more, ROOT).check("all")
    (line,) = [line for line in lines if "are optimistic" in line]
    assert line.startswith("fusions.both.tune.split is dev, ")


def test_systems_that_no_requested_table_shows_are_named(beir, plan_of):
    mine = {"d": {"source": "beir", "path": beir("d", ["train", "test"])}}
    systems = ["de_bm25neg", "bm25+mxbai-rerank-xsmall"]
    of_all = "measures, published, summary, trec_dl, zero_shot"
    line = f"systems names {systems[1]}, which no table of `tables` shows; tables of all systems: {of_all}"
    table4 = plan_of(mine, "d", systems=systems, tables=["dureader_retrieval/table4"])
    assert line in table4.check("all")
    assert line not in table4.check("baseline")
    assert not any(
        text.startswith("systems")
        for text in plan_of(mine, "d", systems=systems, tables=["summary"]).check("all")
    )


def test_counts_of_an_entry_tell_its_splits(plan_of):
    entry = {
        "source": "cmedqa2",
        "access": "licence",
        "counts": {"passages": 9, "test": 3, "test_qrels": 4},
    }
    planned = plan_of({"mine": entry}, "pydocs")
    assert splits(planned.planner.ctx, "mine") == {"test"}


def test_a_split_that_an_entry_draws_is_known(beir, plan_of):
    law = {"source": "domains", "of": "en", "only": ["law"], "dev_from_train": 0.1}
    entries = {
        "en": {"source": "beir", "path": beir("en", ["train", "test"])},
        "law": law,
        "texts": {"source": "rocketqa_tsv", "dual": "dual.tsv", "dev_from_train": 0.2},
        "without": {"source": "rocketqa_tsv", "dual": "dual.tsv"},
    }
    models = {"models": {"de_bm25neg": {"train": {"choose": "dev"}}}}
    planned = plan_of(entries, "en", train_on="law", **models)
    known = {name: splits(planned.planner.ctx, name) for name in entries}
    assert known["law"] == {"train", "dev", "test"}
    assert known["texts"] == {"train", "dev"}
    assert known["without"] == {"train"}
    # chosen on the dev queries that the entry draws
    assert planned.planner.model("de_bm25neg", "here").upstream["dataset"].dataset == "law"


def test_the_splits_of_training_lists_are_those_that_their_entry_names(plan_of, tmp_path):
    for name in ("part1.jsonl", "dev.jsonl"):
        (tmp_path / name).touch()
    entry = {"source": "training_lists", "path": str(tmp_path)}
    entry["lists"] = {"train": ["part1.jsonl"], "dev": "dev.jsonl"}
    planned = plan_of({"mine": entry}, "mine")
    assert splits(planned.planner.ctx, "mine") == {"train", "dev"}
    assert (planned.split, score(planned).name) == ("dev", "bm25.dev")


def test_a_group_has_no_passages_to_train_on(beir, plan_of):
    members = {
        "a": {"source": "beir", "path": beir("a", ["train", "test"])},
        "g": {"source": "group", "of": ["a"]},
    }
    planned = plan_of(members, "g")
    assert "results/tables/summary.csv" in planned.tables.files()
    assert any(
        "g is a group: it has scores, but no passages; name one of" in line
        for line in planned.check("all")
    )
    assert planned.tables.files("baseline")


def test_a_pair_takes_passages_from_one_and_queries_from_another(beir, plan_of):
    entries = {name: {"source": "beir", "path": beir(name, ["test"])} for name in ("en", "zh")}
    entries["zh-en"] = {"source": "pair", "corpus_of": "en", "queries_of": "zh"}
    data = plan_of(entries, "zh-en").planner.dataset("zh-en")
    assert {role: stage.dataset for role, stage in data.upstream.items()} == {
        "corpus": "en",
        "queries": "zh",
    }
    assert data.params == DatasetParams(source="pair", normalize="nfc")


def test_datasets_of_the_same_passages_have_them_encoded_and_indexed_once(beir, plan_of):
    entries = {name: {"source": "beir", "path": beir(name, ["test"])} for name in ("en", "de")}
    entries["broken"] = {"source": "perturbed", "of": "en-de"}
    entries["en-de"] = {"source": "pair", "corpus_of": "en", "queries_of": "de"}
    entries["bare"] = {"source": "pair", "corpus_of": "en", "queries_of": "de", "title": False}
    entries["raw"] = {"source": "pair", "corpus_of": "en", "queries_of": "de", "normalize": "none"}
    ctx = plan_of(entries, "en").planner.ctx
    origins = {name: corpus_dataset(ctx, name) for name in ctx.datasets if name in entries}
    assert origins == {
        "en": "en",
        "de": "de",
        "en-de": "en",
        "broken": "en",
        "bare": "bare",
        "raw": "raw",
    }
    sides = encode_both_sides(ctx, "embeddings", "encoder", "test", "tables", "broken")
    read = {role: stage.upstream.get("dataset", stage).dataset for role, stage in sides.items()}
    assert read == {"dataset": "broken", "passages": "en", "queries": "broken"}
    # What the search compares exists when it begins: the dataset and the token ids of both sides.
    behind = read_behind_inputs(search_vectors(ctx, "encoder", "test", "tables", "broken", None))
    compared = {(stage.declared.holds, stage.dataset) for stage in behind}
    assert compared == {
        (holds, data) for holds in ("collection", "tokens") for data in ("en", "broken")
    }
    assert not read_behind_inputs(search_vectors(ctx, "encoder", "test", "tables", "en", None))


def test_datasets_that_are_made_of_each_other_are_a_cycle(plan_of):
    entries = {
        "a": {"source": "pair", "corpus_of": "b", "path": "/"},
        "b": {"source": "dissimilar", "of": "a"},
    }
    with pytest.raises(UserError, match="datasets form a cycle: a -> b -> a"):
        plan_of(entries, "a").check("all")


@pytest.mark.parametrize("members", [["a"], ["b", "a"]])
def test_a_group_that_holds_itself_is_a_cycle(beir, plan_of, members):
    b = {"source": "beir", "path": beir("b", ["test"])}
    groups = {"a": {"source": "group", "of": ["c"]}, "c": {"source": "group", "of": members}}
    with pytest.raises(UserError, match="datasets form a cycle: a -> c -> a"):
        plan_of(groups | {"b": b}, "a", tables=["baseline"]).check("all")


def test_a_member_counts_once(beir, plan_of):
    member = {"source": "beir", "path": beir("a", ["test"])}
    with pytest.raises(UserError, match="datasets.g.of names a value twice"):
        plan_of({"a": member, "g": {"source": "group", "of": ["a", "a"]}}, "g", tables=["baseline"])


def test_answers_are_matched_before_they_are_scored(beir, plan_of):
    entry = {
        "source": "beir",
        "path": beir("qa", ["test"]),
        "relevance": "answers",
        "match": "regex",
    }
    scored = score(plan_of({"qa": entry}, "qa"))
    match = scored.upstream["match"]
    assert (match.kind, match.values["match"], match.upstream["run"]) == (
        "match",
        "regex",
        scored.upstream["run"],
    )
    # R@k and nDCG@k need to know all relevant passages, which answers do not tell
    assert scored.values["measures"] == ["RR@10", "Success@1", "Success@50"]


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (
            {"measures": ["RR@10", "nDCG@10"]},
            "score.measures: nDCG@10 needs qrels, but dataset qa has answers",
        ),
        # all of the run, of which the top is matched
        ({"measures": ["RR"]}, "score.measures: RR needs qrels"),
        ({"usual": ["RR", "R@10"]}, "score.usual: RR needs qrels"),
    ],
)
def test_measures_that_answers_do_not_tell_are_refused_before_anything_runs(
    beir, plan_of, keys, line
):
    entry = {"source": "beir", "path": beir("qa", ["test"]), "relevance": "answers"}
    with pytest.raises(UserError, match=line):
        score(plan_of({"qa": entry}, "qa", score=keys, tables=["baseline"]))


@pytest.mark.parametrize("searched", ["qa", "part"])
def test_answers_cannot_leave_out_a_querys_own_passage(beir, plan_of, searched):
    """As the score says, but before anything runs; `part` takes both keys over."""
    own = {"relevance": "answers", "ignore_identical_ids": True}
    datasets = {
        "qa": {"source": "beir", "path": beir("qa", ["test"])} | own,
        "part": {"source": "domains", "of": "qa", "only": ["x"]},
    }
    line = f"datasets.{searched}.ignore_identical_ids is true, but relevance is answers"
    with pytest.raises(UserError, match=line):
        score(plan_of(datasets, searched))


def test_members_of_a_group_are_scored_by_its_measures(beir, plan_of):
    member = {"source": "beir", "path": beir("a", ["test"]), "measures": ["Success@5"]}
    scored = score(
        plan_of({"a": member, "g": {"source": "group", "of": ["a"], "measures": ["RR@10"]}}, "g")
    )
    assert scored.upstream["member.0"].values["measures"] == scored.values["measures"] == ["RR@10"]


def test_a_datasets_own_measures_and_split_are_reported(beir, plan_of):
    entry = {
        "source": "beir",
        "path": beir("d", ["dev"]),
        "score_split": "dev",
        "measures": ["RR@10"],
    }
    scored = score(plan_of({"d": entry}, "d"))
    assert (scored.params, scored.name) == (
        ScoreParams(measures=("RR@10",), split="dev"),
        "bm25.dev",
    )
    over = plan_of({"d": entry}, "d", score={"measures": ["AP"]}, tables=["baseline"])
    assert score(over).values["measures"] == ["AP"]


def test_dev_is_reported_where_there_is_no_test_set(beir, plan_of):
    planned = plan_of({"d": {"source": "beir", "path": beir("d", ["train", "dev"])}}, "d")
    assert (planned.split, score(planned).name) == ("dev", "bm25.dev")
    # as deep as a test set's run
    assert score(planned).upstream["run"].values["depth"] == 1000


def test_the_key_that_says_how_deep_runs_go_is_that_which_counts(beir, plan_of):
    entry = {"source": "beir", "path": beir("d", ["train", "dev", "test"])}
    depth = {"train": 50, "dev": 60, "test": 700}
    keys = {"train": "train", "unlabelled": "train", "dev": "dev", "test": "test", "dl19": "test"}
    for reported, changed in (
        ("test", {}),
        ("dev", {"dev": "test"}),
        ("train", {"train": "test", "unlabelled": "test"}),
    ):
        ctx = plan_of({"d": entry | {"score_split": reported}}, "d", depth=depth).planner.ctx
        expected = keys | changed
        assert {split: find_depth_key(ctx, split, "d") for split in keys} == expected
        depths = {split: run_depth(ctx, split, "d") for split in keys}
        assert depths == {split: depth[key] for split, key in expected.items()}


def test_a_message_names_the_depth_that_counts(beir, plan_of):
    entry = {"d": {"source": "beir", "path": beir("d", ["train", "dev"])}}  # dev is reported
    with pytest.raises(
        UserError, match="rerank.depth is 1001, but runs on dev are 1000 deep; raise depth.test"
    ):
        plan_of(entry, "d", rerank={"depth": 1001}).check("all")
    lists = {"models": {"de_bm25neg": {"candidates": {"split": "dev", "depth": 1001}}}}
    with pytest.raises(UserError) as error:
        plan_of(entry, "d", **lists).planner.model("de_bm25neg", "here")
    assert "raise depth.test (depth: {test: 1001}) or lower candidates.depth" in str(error.value)


def test_usual_measures_deeper_than_the_runs_are_left_out(beir, plan_of):
    planned = plan_of(
        {"d": {"source": "beir", "path": beir("d", ["test"])}}, "d", depth={"test": 60}
    )
    assert score(planned).values["measures"] == [
        "RR@10",
        "nDCG@10",
        "Success@1",
        "Success@50",
        "R@50",
        "AP",
    ]


def test_identical_ids_are_dropped_only_where_asked(beir, plan_of):
    entry = {"source": "beir", "path": beir("d", ["test"])}
    plain, ignoring = (
        plan_of({"d": entry | more}, "d") for more in ({}, {"ignore_identical_ids": True})
    )
    assert [score(planned).values["ignore_identical_ids"] for planned in (plain, ignoring)] == [
        False,
        True,
    ]
    # the run itself is the same
    assert score(plain).upstream["run"].digest == score(ignoring).upstream["run"].digest


def test_no_query_is_its_own_negative_where_its_copies_are_trained_on(beir, plan_of):
    entry = {"source": "beir", "path": beir("d", ["train", "dev", "test"])}
    typos = {"source": "perturbed", "of": "d", "split": "train"}
    planned = plan_of({"d": entry | {"ignore_identical_ids": True}, "t": typos}, "d", train_on="t")
    candidates = planned.planner.model("de_bm25neg", "here").upstream["candidates"]
    assert candidates.dataset == "t"
    assert candidates.values["ignore_identical_ids"] is True


def test_without_training_queries_bm25_and_the_untrained_encoder_are_made_and_the_rest_is_named(
    beir, plan_of
):
    planned = plan_of({"d": {"source": "beir", "path": beir("d", ["test"])}}, "d")
    assert "results/tables/summary.csv" in planned.tables.files()
    assert [row.system for row, _ in planned.tables["summary"]] == ["BM25", "Encoder, untrained"]
    lines = [line for line in planned.check("all") if line.startswith("summary lacks ")]
    assert len(lines) == 4  # models whose own training has no queries
    assert all(
        "is trained on split train, but dataset d has test; name another" in line for line in lines
    )
    assert planned.tables.files("baseline") == ["results/tables/baseline.csv"]
    assert [stage.kind for _, stage in planned.tables["baseline"]] == ["score"]
    # nothing to compare with, nobody to judge: the audits make do with BM25
    assert [Path(part).parts[2] for part in planned.view("audits").manifests()] == [
        "noise",
        "false_negatives",
        "score",
    ]
    audit = planned.view("audits").pool()
    assert set(audit.upstream) == {"dataset", "run.0"}


def test_systems_that_need_no_training_are_rows_of_the_baseline(beir, plan_of, described_folder):
    """By a name of `encoders`, by a folder, re-ranked by a published cross-encoder; a trained one is in the summary."""
    tiny, other = described_folder("tiny"), str(described_folder("other"))
    published = {"encoders": {"tiny": {"source": "folder", "path": str(tiny)}}}
    published |= {
        "rerankers": {"mini": {"source": "hub", "name": "org/mini", "revision": "0" * 40}}
    }
    published |= {"lengths": {"query": 16, "passage": 64}}
    systems = ["bm25", "tiny", "tiny@binary", other, "bm25+mini", "de_bm25neg"]
    planned = plan_of(
        {"d": {"source": "beir", "path": beir("d", ["train", "test"])}},
        "d",
        systems=systems,
        **published,
    )
    rows = {row.system: stage for row, stage in planned.tables["baseline"]}
    assert list(rows) == ["BM25", "tiny", "tiny@binary", other, "mini"]
    assert [stage.upstream["run"].kind for stage in rows.values()] == [
        "bm25",
        "retrieve",
        "ann",
        "retrieve",
        "rerank",
    ]
    summary = [row.system for row, _ in planned.tables["summary"]]
    # the trained one is there by the table's own name
    assert summary[-4:] == ["tiny", "tiny@binary", other, "mini"]
    assert summary.count("DE w/ BM25 Neg") == 1
    assert {row.id: row.baseline for row in planned.tables._read["baseline"].rows} == {
        ("BM25", ""): None,
        ("tiny", ""): ("BM25", ""),
        ("tiny@binary", ""): ("BM25", ""),
        (other, ""): ("BM25", ""),
        ("mini", "BM25"): ("BM25", ""),
    }


def test_any_name_of_a_folder_makes_keys_that_rules_match(beir, plan_of, described_folder):
    folder = str(described_folder("mon modèle (neuf)"))
    entry = {"source": "beir", "path": beir("d", ["train", "test"])}
    planned = plan_of({"d": entry}, "d", systems=[folder], lengths={"query": 16, "passage": 64})
    rows = {row.system: stage for row, stage in planned.tables["baseline"]}
    stages = upstream_first([rows[folder]])
    assert any("mon_mod_le__neuf_" in stage.key for stage in stages)
    assert all(KEY.fullmatch(stage.key) for stage in stages)


def test_a_folders_bare_name_is_no_system_and_the_message_says_how_to_name_it(
    beir, plan_of, monkeypatch, tmp_path
):
    """Else a folder that lies there by chance would change what a misspelt name means."""
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    own = {"d": {"source": "beir", "path": beir("d", ["train", "test"])}}
    with pytest.raises(
        UserError, match=r"systems: mine is not a model; the folder of that name is \./mine"
    ):
        plan_of(own, "d", systems=["bm25", "mine"])


def test_models_of_another_dataset_serve_one_without_training_queries(beir, plan_of):
    planned = plan_of(
        {"d": {"source": "beir", "path": beir("d", ["test"])}}, "d", train_on="pydocs"
    )
    run = score(planned, "de_bm25neg").upstream["run"]
    assert run.dataset == "d"
    assert run.upstream["passages"].upstream["model"].dataset == "pydocs"
    assert "judge.0" in planned.view("audits").pool().upstream


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"pasages": 60}, "pasages is neither passages nor a split; did you mean passages"),
        ({"dl19_qrel": 60}, "dl19_qrel is neither passages nor a split; did you mean dl19_qrels"),
        (
            {"xyz": 60},
            "xyz is neither passages nor a split; allowed: dev, dev_qrels, dl19, dl19_qrels, passages, ",
        ),
        # test is not in the folder, which the job says
        ({"passages": 1, "dl19": 1, "dl19_qrels": 1, "test": 3}, ""),
    ],
)
def test_a_count_of_what_no_dataset_has_is_refused(beir, plan_of, counts, message):
    entry = {"d": {"source": "beir", "path": beir("d", ["dl19"]), "counts": counts}}
    with (
        pytest.raises(UserError, match=f"datasets.d.counts.{message}") if message else nullcontext()
    ):
        plan_of(entry, "d").planner.dataset("d")


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        ("trec", b"", "the run is empty; at least one line is needed"),
        ("trec", b"d\td\t1\n", ":1: not a run line: "),
        (
            "ranks",
            gzip.compress(b"d d 1\n", mtime=0),
            ":1: 1 columns by tabs; a line is query id, passage id, rank",
        ),
        ("margin_mse", b"1\tx\tq\td\td\n", ":1: score is 'x'; a number is needed"),
        # what follows is left to the job
        ("trec", gzip.compress(b"q Q0 d 1 2 x\nbroken\n", mtime=0), ""),
    ],
)
def test_a_released_run_is_looked_at_before_anything_runs(
    beir, plan_of, tmp_path, kind, content, message
):
    (tmp_path / "run").write_bytes(content)
    entry = {"d": {"source": "beir", "path": beir("d", ["test"])}}
    planned = plan_of(
        entry, "d", runs={"theirs": {"format": kind, "paths": {"test": str(tmp_path / "run")}}}
    )
    with (
        pytest.raises(UserError, match=f"runs.theirs.paths.test: .*{message}")
        if message
        else nullcontext()
    ):
        score(planned, "theirs")


def test_another_analyzer_is_another_system(beir, plan_of):
    planned = plan_of({"d": {"source": "beir", "path": beir("d", ["test"])}}, "d")
    words = score(planned, "bm25.jieba").upstream["run"]
    assert (words.name, words.upstream["lucene"].values["analyzer"]) == ("bm25.jieba.test", "jieba")
    assert score(planned, "bm25.default").upstream["run"] is score(planned, "bm25").upstream["run"]
    with pytest.raises(
        UserError, match=r"here: bm25.jeiba has an unknown analyzer; did you mean jieba\?"
    ):
        score(planned, "bm25.jeiba")


def test_an_entry_with_a_source_replaces_the_catalogues_and_one_without_changes_it(beir, plan_of):
    own = plan_of({"scifact": {"source": "beir", "path": beir("scifact", ["test"])}}, "scifact")
    assert own.settings.datasets["scifact"].source == "beir"
    changed = plan_of({"scifact": {"title": False}}, "scifact", tables=["baseline"])
    entry = changed.settings.datasets["scifact"]
    assert (entry.source, entry.id, entry.title) == ("ir_datasets", "beir/scifact", False)


def test_a_language_without_an_analyzer_is_refused_before_anything_runs(plan_of, beir):
    entry = {"source": "beir", "path": beir("d", ["test"]), "language": "vi"}
    with pytest.raises(
        UserError,
        match="datasets.d.language is vi, which Lucene has no analyzer for; allowed: ar, bn",
    ):
        plan_of({"d": entry}, "d").check("all")
    assert score(plan_of({"d": entry | {"analyzer": "whitespace"}}, "d")).kind == "score"


def test_a_format_without_its_folder_is_refused_before_anything_runs(plan_of):
    with pytest.raises(
        UserError, match="datasets.d.path is missing; name the folder that holds its files"
    ):
        plan_of({"d": {"source": "squad", "files_of": {"test": "x.json"}}}, "d").check("all")


def test_what_is_not_public_says_where_to_ask(plan_of):
    entry = {"source": "beir", "access": "licence", "where": "https://example.org/licence"}
    with pytest.raises(UserError, match="datasets.d is not public: https://example.org/licence"):
        plan_of({"d": entry}, "d")


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"dataset": "squadd"}, "dataset"),
        ({"train_on": "squadd"}, "train_on"),
        ({"models": {"mine": {"like": "de_bm25neg", "dataset": "squadd"}}}, "models.mine.dataset"),
        (
            {
                "datasets": {"d": {"source": "union", "of": ["pydocs", "squadd"]}},
                "train_on": "d",
            },
            "datasets.d.of",
        ),
    ],
)
def test_the_key_that_names_no_dataset_is_named(configured, keys, key):
    config = configured()
    for name, value in keys.items():
        config[name] = {**config[name], **value} if isinstance(value, dict) else value
    with pytest.raises(UserError, match=rf"(?m)^{key}: squadd is unknown; did you mean squad"):
        Plan(config, ROOT)
