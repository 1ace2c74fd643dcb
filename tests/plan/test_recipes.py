"""The recipes' graphs: who starts from whom, whose negatives, at the papers' sizes; and the small variants of each."""

import json
import shutil
from pathlib import Path

import pytest
import tiny_sparse
from tiny_project import write_qrels_folder

from tandem.config.merging import merged, read_yaml
from tandem.errors import Unavailable, UserError
from tandem.models.saving import DualShape, describe_encoder
from tandem.plan.graph import upstream_first
from tandem.plan.plan import Plan

ROOT = Path(__file__).parents[2]
# Of no paper.
OTHERS = {
    "dimensions",
    "matryoshka",
    "perturbed",
    "pretraining",
    "pretraining_bert",
    "scifact",
    "systems",
    "systems_debian",
    "systems_debian_long",
    "systems_squad",
    "zero_shot",
}
# whose folders the user has
COLLECTIONS = {
    "articles",
    "chinese",
    "squad",
    "debian",
    "debian_domains",
    "debian_cross_lingual",
    "debian_generated",
    "debian_near",
}
SMALL = sorted(
    {path.stem for path in (ROOT / "config/small").glob("*.yaml")} - OTHERS - COLLECTIONS
)
# of the surveys, in the order in which one may build on another
SYSTEMS = [
    "deepct",
    "unicoil",
    "splade",
    "sparterm",
    "lex_mae",
    "uhd_bert",
    "spade",
    "colbert",
    "coil",
    "me_bert",
    "dpr",
    "ance",
    "ance_tele",
    "star",
    "adore",
    "pair",
    "repbert",
    "cocondenser",
    "retromae",
    "cot_mae",
    "contriever",
    "bert_reranker",
    "tfr_bert",
    "cakd",
    "poly_encoder",
    "tas_b",
    "tct_colbert",
    "cl_drd",
    "prod",
    "augsbert",
    "nprinc",
    "dragon",
]


def planned(*names, **more):
    """The plan of files of config/, laid upon the default one after the other, and further keys."""
    config = read_yaml(ROOT / "config/config.yaml")
    for layer in (*(read_yaml(ROOT / f"config/{name}.yaml") for name in names), more):
        config = merged(config, layer)
    return Plan(config, ROOT)


@pytest.fixture(scope="module")
def msmarco():
    return planned("msmarco")


def model(plan, name):
    return plan.planner.model(name, "test")


def drawn(plan, name, role="candidates"):
    return model(plan, name).upstream[role]


def test_dureaders_pool_is_of_bm25_and_four_encoders():
    recipes = read_yaml(ROOT / "config/dureader.yaml")["recipes"]
    plan = planned("dureader", recipes=[*recipes, "dureader_pool"])
    audit = plan.view("audits").pool()
    retrievers = [
        audit.upstream[f"run.{at}"].upstream["passages"].upstream["model"] for at in range(1, 5)
    ]
    rerankers = [audit.upstream[f"judge.{at}"] for at in range(4)]
    starts = [
        "ernie-1.0-base-zh",
        "bert-base-chinese",
        "chinese-roberta-wwm-ext",
        "chinese-macbert-base",
    ]
    for models in (retrievers, rerankers):
        assert [model.upstream["start"].name for model in models] == starts
    assert audit.upstream["run.0"].kind == "bm25"
    lists = rerankers[0].upstream["candidates"]
    assert len([role for role in lists.upstream["run"].upstream if role.startswith("run.")]) == 5
    assert (audit.values["depth"], audit.values["top"]) == (50, 5)


def test_rocketqas_first_step_takes_random_negatives(msmarco):
    lists = drawn(msmarco, "m_d0")
    assert set(lists.upstream) == {"dataset", "tokens"}
    assert (lists.name, lists.values["negatives"], lists.values["negatives_per"]) == (
        "random",
        4,
        "positive",
    )
    train = model(msmarco, "m_d0").values["train"]
    assert (train["queries_per_batch"], train["list_size"], train["in_batch"], train["lr"]) == (
        4096,
        5,
        True,
        3e-5,
    )
    assert (train["instance"], train["resample"], train["schedule"]) == (
        "positive",
        False,
        "linear",
    )
    released = model(msmarco, "m_d0_release").values["train"]
    assert (released["instance"], released["schedule"]) == ("row", "linear_from_start")


def test_the_papers_inputs_and_heads_are_planned(msmarco):
    # 32 and 128 tokens with [CLS] and [SEP]; title and text are two segments; a pair has 160 in all
    read = model(msmarco, "m_d0").upstream["tokens"].values
    assert (read["query_length"], read["passage_length"], read["titled"]) == (30, 126, True)
    pairs = model(msmarco, "m_c").upstream["tokens"].values
    assert (pairs["query_length"], pairs["pair_length"], pairs.get("titled")) == (30, 160, None)
    assert [model(msmarco, name).values["pooling"] for name in ("m_c", "m_c_cls")] == [
        "classifier",
        "cls",
    ]
    joint = model(msmarco, "rocketqav2").values["train"]
    assert (joint["schedule"], joint["epochs"], joint["dropout"]) == ("constant", 2.0, None)
    assert joint["reranker"] == {"lr": None, "dropout": 0.1}
    assert (
        model(msmarco, "rocketqav2_literal").values["train"]["weight"] == joint["queries_per_batch"]
    )
    dureader = planned("dureader")
    pairs = model(dureader, "ce_deneg").upstream["tokens"].values
    assert (pairs["pair_length"], model(dureader, "ce_deneg").values["pooling"]) == (
        384,
        "classifier",
    )
    assert model(dureader, "ce_deneg").values["train"]["schedule"] == "constant"


def test_rocketqas_second_step_takes_four_of_the_top_thousand(msmarco):
    lists = drawn(msmarco, "m_c")
    assert (lists.values["first_rank"], lists.values["depth"], lists.values["negatives"]) == (
        1,
        1000,
        4,
    )
    assert lists.upstream["run"].upstream["passages"].upstream["model"] is model(msmarco, "m_d0")
    assert drawn(msmarco, "m_c_top50").values["depth"] == 50


def test_rocketqas_third_step_denoises_and_fills_up(msmarco):
    lists = drawn(msmarco, "m_d1")
    assert lists.values["denoise"] == {
        "negative_below": 0.1, "positive_above": None, "hybrid": False, "backfill": {"first_rank": 51, "depth": 1000}
    }  # fmt: skip
    assert (lists.values["take"], lists.values["negatives"], lists.values["negatives_per"]) == (
        "first",
        4,
        "positive",
    )
    assert lists.upstream["judge.0"] is model(msmarco, "m_c")
    # from the beginning, not from m_d0
    assert model(msmarco, "m_d1").upstream["start"].kind == "encoder"
    assert model(msmarco, "m_d1_continued").upstream["start"] is model(msmarco, "m_d0")
    assert drawn(msmarco, "m_d1_unfilled").values["denoise"]["backfill"] is None


def test_rocketqas_fourth_step_joins_pseudo_labelled_queries(msmarco):
    assert drawn(msmarco, "m_d2") is drawn(msmarco, "m_d1")
    more = drawn(msmarco, "m_d2", "candidates.1")
    assert (more.values["labels"], more.values["split"], more.values["depth"]) == (
        "judge",
        "unlabelled",
        50,
    )
    assert (more.values["denoise"]["negative_below"], more.values["denoise"]["positive_above"]) == (
        0.1,
        0.9,
    )
    assert more.upstream["run"].upstream["passages"].upstream["model"] is model(msmarco, "m_d1")
    assert more.upstream["judge.0"] is model(msmarco, "m_c")


def test_rocketqav2_starts_from_rocketqas_first_two_steps(msmarco):
    joint = model(msmarco, "rocketqav2")
    starts = joint.upstream["retriever"], joint.upstream["reranker"]
    assert starts == (model(msmarco, "m_d0"), model(msmarco, "m_c_cls"))
    assert joint.values["train"]["list_size"] == 128
    reference = model(msmarco, "rocketqav2_reference").values["train"]
    assert (reference["semantics"], reference["schedule"], reference["warmup"]) == (
        "reference",
        "constant",
        0.0,
    )
    assert model(msmarco, "rocketqav2_in_batch").values["train"]["in_batch"] is True


def test_natural_questions_are_labelled_by_answers():
    plan = planned("nq")
    assert drawn(plan, "m_d0").upstream["run"].kind == "given"
    for name in ("m_c", "m_d1"):
        lists = drawn(plan, name)
        assert (lists.values["labels"], lists.values["depth"], lists.values["negatives"]) == (
            "answers",
            100,
            1,
        )
        assert lists.upstream["match"].upstream["run"] is lists.upstream["run"]
        assert lists.upstream["match"].values["match"] == "string"
    assert drawn(plan, "m_d1").values["denoise"]["backfill"] is None
    assert model(plan, "rocketqav2").values["train"]["list_size"] == 32
    shown = plan.planner.ctx.dataset_entry("natural-questions-unlabelled")
    assert (shown.relevance, shown.measures) == (
        "answers",
        ("Success@5", "Success@20", "Success@100"),
    )


def test_fine_tuned_models_go_on_from_the_zero_shot_ones_elsewhere():
    plan = planned(
        "dureader", dataset="cmedqa2", train_on="dureader-retrieval", tables=["out_of_domain"]
    )
    for name, start in (("de_finetuned", "de_bm25neg"), ("ce_finetuned", "ce_bm25neg")):
        tuned = model(plan, name)
        assert (tuned.dataset, tuned.upstream["start"]) == ("cmedqa2", model(plan, start))
        assert model(plan, start).dataset == "dureader-retrieval"
        assert drawn(plan, name).upstream["run"].dataset == "cmedqa2"


def test_the_transferred_model_goes_on_from_the_zero_shot_one():
    plan = planned("small/cross_lingual")
    pair, en = "xquad-zh-en-halves", "xquad-en-halves"
    assert [
        model(plan, f"de_{name}").dataset for name in ("bm25neg", "supervised", "transferred")
    ] == [en, pair, pair]
    assert model(plan, "de_transferred").upstream["start"] is model(plan, "de_bm25neg")
    assert model(plan, "de_supervised").upstream["start"].kind == "pretrain"
    assert "run" not in drawn(plan, "de_supervised").upstream


@pytest.mark.parametrize("name", SMALL)
def test_a_small_variant_can_be_planned(name):
    plan = planned(f"small/{name}")
    assert plan.tables.files()
    trained = {
        stage.values["train"]["steps"]
        for score in plan.tables.requested_scores()
        for stage in models_of(score)
    }
    assert None not in trained
    assert max(trained) <= 480  # minutes on two cores


@pytest.mark.parametrize(("collection", "folder"), [("chinese", "cn-med-im"), ("squad", "squad")])
def test_a_collection_has_all_of_the_papers_tables(
    collection, folder, encoder_folder, tmp_path, monkeypatch
):
    write_qrels_folder(tmp_path / "data" / folder, "one", ("train", "dev", "test"))
    small = shutil.copytree(encoder_folder, tmp_path / "data/multilingual-e5-small-q4")
    config = json.loads((small / "config.json").read_text())
    sizes = {"num_hidden_layers": 12, "max_position_embeddings": 512}  # those of the real one
    (small / "config.json").write_text(json.dumps(config | sizes))
    monkeypatch.chdir(tmp_path)
    encoders = {"multilingual-e5-small-q4": {"sha256": None}}  # of a tiny one here
    plan = planned("small/all_tables", f"small/{collection}", encoders=encoders)
    for table in plan.tables.requested():
        assert not [row for row in plan.tables.rows(table) if row.absent]
    assert plan.view("sweeps").files_of(["rocketqav2_figure4_small"])


def test_debian_has_targets_out_of_domain_and_across_languages(tmp_path, monkeypatch):
    for language in ("", "-de", "-fr", "-ja"):
        write_qrels_folder(tmp_path / f"data/debian{language}", "one", ("train", "dev", "test"))
    (tmp_path / "data/debian/sections.tsv").touch()
    monkeypatch.chdir(tmp_path)
    tables = [f"dureader_retrieval/table{number}" for number in (7, 8, 9)]
    domains = planned("small/debian", "small/debian_domains", tables=tables[:2])
    languages = planned(
        "small/debian",
        stand_in={"dureader-retrieval": "debian", "dureader-retrieval-en": "debian-ja"},
        recipes=["dureader_retrieval", "rocketqav2", "cross_lingual"],
        tables=tables[2:],
    )
    searched = ["debian-science"], ["debian-play"], ["debian", "debian-ja"]
    for table, plan, expected in zip(tables, (domains, domains, languages), searched, strict=True):
        rows = plan.tables.rows(table)
        assert not [row for row in rows if row.absent]
        assert sorted({row.dataset for row in rows}) == expected


def test_near_copies_count_as_relevant_without_another_training(tmp_path, monkeypatch):
    write_qrels_folder(tmp_path / "data/debian", "one", ("train", "dev", "test"))
    monkeypatch.chdir(tmp_path)
    plain, near = planned("evening"), planned("evening", "small/debian_near")
    assert not [row for row in near.tables.rows("evening") if row.absent]
    pairs = zip(plain.tables["evening"], near.tables["evening"], strict=True)
    for (_, score), (_, with_copies) in pairs:
        assert (score.dataset, with_copies.dataset) == ("debian", "debian-near")
        keys, others = ({model.key for model in models_of(s)} for s in (score, with_copies))
        assert keys == others


def models_of(stage):
    """The trained models that a stage descends from."""
    models = [stage] if stage.kind == "model" else []
    return models + [
        ancestor for upstream in stage.upstream.values() for ancestor in models_of(upstream)
    ]


def test_the_fourth_step_needs_queries_without_labels():
    plan = planned(
        recipes=["dureader_retrieval", "rocketqav2", "rocketqa"],
        tables=["baseline"],
        depth={"train": 1000},
    )
    # it shows what is printed, and why
    absent = [row for row in plan.tables.rows("rocketqa/steps") if row.absent]
    assert [row.system for row in absent] == ["M_D2"]
    with pytest.raises(
        Unavailable, match="split unlabelled, but dataset pydocs has dev, test, train"
    ):
        model(plan, "m_d2")
    assert model(plan, "m_d1").kind == "model"


@pytest.mark.parametrize(
    ("candidates", "line"),
    [
        ({"from": "random", "labels": "judge", "denoise": {"by": "ce_bm25neg"}}, "from is random, which finds no"),
        ({"labels": "judge"}, "candidates.labels is judge, which needs denoise.positive_above"),
        (
            {"labels": "judge", "near_duplicates": 0.5, "denoise": {"by": "ce_bm25neg"}},
            "candidates.near_duplicates: labels is judge, so there is no positive to compare with",
        ),
        (
            {"negatives": None, "denoise": {"by": "ce_bm25neg", "backfill": {"first_rank": 31, "depth": 50}}},
            "candidates.denoise.backfill fills lists up to negatives, which is null",
        ),
        (
            {"from": "random", "negatives": 4}
            | {"denoise": {"by": "ce_bm25neg", "backfill": {"first_rank": 51, "depth": 60}}},
            "candidates.denoise.backfill: random draws depth passages and no more",
        ),
        ({"also": [{"from": "bm25", "also": [{"from": "bm25"}]}]}, "candidates.also.0.also: lists are joined once"),
        ({"also": [{"from": "bm25", "depth": 500}]}, "candidates.also.0.depth is 500, but bm25 retrieves only 50"),
        ({"take": "last"}, "candidates.take is \"last\"; allowed: random, first"),
        ({"split": "unlabelled"}, None),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_one_line(candidates, line):
    own = {"de_bm25neg": {"candidates": candidates}}
    # a split that is not there makes the table impossible, not the configuration wrong
    if line is None:
        plan = planned(models=own, tables=["baseline"])
        with pytest.raises(Unavailable, match="candidates: draws lists on split unlabelled"):
            model(plan, "de_bm25neg")
        return
    with pytest.raises(UserError) as error:
        planned(models=own)
    assert line in str(error.value)


@pytest.fixture(scope="module")
def surveyed():
    """The surveys' systems at their papers' sizes, on MS MARCO beside RocketQA's."""
    return planned("msmarco", recipes=["dureader_retrieval", "rocketqa", "rocketqav2", *SYSTEMS])


@pytest.mark.parametrize("recipe", SYSTEMS)
def test_every_model_of_a_surveys_system_can_be_planned(surveyed, recipe):
    names = read_yaml(ROOT / f"config/recipes/{recipe}.yaml")["models"]
    assert names
    assert {model(surveyed, name).name for name in names} == set(names)


@pytest.mark.parametrize("recipe", ["adore", "cl_drd", "dragon"])
def test_a_recipe_brings_those_that_it_builds_on(recipe):
    plan = planned("msmarco", recipes=["dureader_retrieval", "rocketqa", "rocketqav2", recipe])
    for name in read_yaml(ROOT / f"config/recipes/{recipe}.yaml")["models"]:
        assert model(plan, name).name == name


def test_ance_searches_anew_with_each_model_of_its_chain(surveyed):
    for before, after in (("ance_0", "ance_1"), ("ance_1", "ance_2"), ("ance_2", "ance_3")):
        lists = drawn(surveyed, after)
        assert model(surveyed, after).upstream["start"] is model(surveyed, before)
        assert lists.upstream["run"].upstream["passages"].upstream["model"] is model(
            surveyed, before
        )
        assert (lists.values["depth"], lists.values["negatives"]) == (200, 20)
    assert model(surveyed, "star").upstream["start"] is model(surveyed, "ance_0")


def test_dragons_teachers_come_one_after_the_other(surveyed):
    teachers = ["unicoil", "contriever_2", "colbert", "splade_distilled"]
    for number, name in enumerate(("dragon_1", "dragon_2", "dragon_3", "dragon_4")):
        lists = [
            stage
            for role, stage in model(surveyed, name).upstream.items()
            if role.startswith("candidates")
        ]
        assert [stage.name.partition("@")[0] for stage in lists] == teachers[: number + 1]
        assert {stage.values["positives"] for stage in lists} == {10}
        assert {(stage.values["first_rank"], stage.values["depth"]) for stage in lists} == {
            (46, 50)
        }
        assert {stage.dataset for stage in lists} == {"dragon"}
    assert model(surveyed, "dragon_4").upstream["start"] is model(surveyed, "dragon_3")
    queries = surveyed.planner.dataset("dragon").upstream["queries"]
    assert (queries.name, queries.values["number"]) == ("dragon_generated", 3)


def test_nprinc_learns_from_generated_queries_and_then_from_labels(surveyed):
    second, last = model(surveyed, "nprinc_generated_2"), model(surveyed, "nprinc")
    assert (second.dataset, last.dataset) == ("nprinc", "msmarco-titles-unlabelled")
    assert last.upstream["start"] is second
    runs = [
        drawn(surveyed, "nprinc", role).upstream["run"] for role in ("candidates", "candidates.1")
    ]
    assert runs[0].kind == "bm25"
    assert runs[1].upstream["passages"].upstream["model"] is model(surveyed, "nprinc_1")


def test_adore_trains_the_querys_tower_alone_upon_stars_passages(surveyed):
    star, adore = model(surveyed, "star"), model(surveyed, "adore")
    assert (star.values["shared"], adore.values["shared"]) == (True, False)
    assert adore.upstream["start"] is star
    assert adore.upstream["passages"].upstream["model"] is star
    assert (
        adore.upstream["passages"]
        is surveyed.planner.run("star", "dev", "here").upstream["passages"]
    )


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            {"init": "encoder"},
            "models.live.init is encoder, an encoder; live_negatives starts from a trained",
        ),
        (
            {"init": "de_bm25neg", "shared": None},
            "models.live.shared is true, but live_negatives trains the query's",
        ),
        (
            {
                "init": "de_bm25neg",
                "candidates": {"from": "bm25", "refresh": {"lag": 0}},
                "train": {
                    "live_negatives": 20,
                    "in_batch": False,
                    "steps": 20,
                    "checkpoints": 4,
                    "choose": "last",
                },
            },
            "models.live.candidates.refresh is set, but live_negatives",
        ),
    ],
)
def test_live_negatives_need_a_trained_start_two_towers_and_lists_that_stay(model, message):
    live = {"objective": "dual", "shared": False, "candidates": {"from": "bm25"}}
    live |= {"train": {"live_negatives": 20, "in_batch": False}, **model}
    with pytest.raises(UserError, match=message):
        planned(models={"live": live}).planner.model("live", "here")


def test_pair_learns_from_rocketqas_pseudo_labels_first(surveyed):
    first, second = model(surveyed, "pair_1"), model(surveyed, "pair_2")
    assert drawn(surveyed, "pair_1", "candidates.1") is drawn(surveyed, "m_d2", "candidates.1")
    assert (
        first.values["train"]["passage_centric"],
        second.values["train"]["passage_centric"],
    ) == (0.1, 0.0)
    assert (second.upstream["start"], first.values["shared"]) == (first, True)


def test_prods_student_has_ever_stronger_teachers_and_its_own_negatives(surveyed):
    teachers = [model(surveyed, f"prod_{at}").upstream["teacher"] for at in (2, 3, 4)]
    assert [stage.name for stage in teachers] == [
        "prod_teacher_de",
        "prod_teacher_ce",
        "prod_teacher_ce24",
    ]
    for name in ("prod_4", "prod_teacher_ce24"):
        run = drawn(surveyed, name).upstream["run"]
        assert run.upstream["passages"].upstream["model"] is model(surveyed, "prod_3")


def test_prod_weighs_its_kl_by_the_squared_temperature_and_cross_encoders_teach_lists_alone(
    surveyed,
):
    # run_progressive_distill_marco.py of the release: kd_loss ends in `loss_kd *= temperature ** 2`
    for name, queries, in_batch in (
        ("prod_2", 128, True),
        ("prod_3", 64, False),
        ("prod_4", 64, False),
    ):
        train = model(surveyed, name).values["train"]
        distil = [train["distil"][key] for key in ("loss", "temperature", "weight", "supervision")]
        assert distil == ["kl_t2", 4.0, 0.9, 0.1]
        assert (train["queries_per_batch"], train["list_size"], train["in_batch"]) == (
            queries,
            16,
            in_batch,
        )
    for name, lr in (("prod_teacher_ce", 1e-5), ("prod_teacher_ce24", 5e-6)):
        train = model(surveyed, name).values["train"]
        assert (train["lr"], train["steps"], train["queries_per_batch"]) == (lr, 6000, 256)


def test_margin_mse_learns_from_the_mean_of_three_teachers(surveyed):
    for student in ("cakd_ce", "cakd_de"):
        teacher = model(surveyed, student).upstream["teacher"]
        judges = [
            stage.upstream["start"].name
            for role, stage in teacher.upstream.items()
            if role.startswith("judge.")
        ]
        assert judges == ["bert-base-uncased", "bert-large-uncased", "albert-large-v2"]


def test_tas_b_has_batches_of_topics_of_an_untrained_encoders_queries(surveyed):
    stage, trained = (
        model(surveyed, "tas_b").upstream["topics"],
        model(surveyed, "tas_b").values["train"],
    )
    assert (stage.kind, stage.values["clusters"]) == ("topics", 2000)
    assert (stage.upstream["queries"].name, stage.upstream["queries"].values["split"]) == (
        "distilbert-base-uncased.train",
        "train",
    )
    # the encoder is an input
    assert (trained["topics"], trained["margin_bins"]) == ({"clusters": 2000}, 10)
    assert (
        model(surveyed, "tas_b").upstream["teacher"]
        is model(surveyed, "cakd_de").upstream["teacher"]
    )
    assert model(surveyed, "tas_b").upstream["in_batch_teacher"] is model(surveyed, "tas_b_colbert")
    assert not {"topics", "in_batch_teacher"} & set(model(surveyed, "cakd_de").upstream)


def test_tct_colbert_learns_from_late_interaction_in_batch_alone(surveyed):
    stage = model(surveyed, "tct_colbert")
    assert "teacher" not in stage.upstream
    assert stage.upstream["in_batch_teacher"].values["representation"]["type"] == "multi"
    assert (stage.values["train"]["distil"]["supervision"], stage.values["pooling"]) == (
        0.0,
        "mean",
    )


@pytest.mark.parametrize("name", ["colbert", "tct_teacher"])
def test_colbert_tells_queries_from_passages_by_a_token(surveyed, name):
    stage, markers = model(surveyed, name), {"query": "[unused0]", "passage": "[unused1]"}
    assert (
        stage.values["representation"]["markers"]
        == stage.upstream["tokens"].values["markers"]
        == markers
    )
    assert "markers" not in model(surveyed, "tct_colbert").upstream["tokens"].values
    assert model(surveyed, "tct_colbert").upstream["in_batch_tokens"].values["markers"] == markers


def test_cl_drd_learns_one_set_of_scores_in_ever_longer_ordered_groups(surveyed):
    phases = [model(surveyed, f"cl_drd_{at}") for at in (1, 2, 3)]
    assert len({stage.upstream["teacher"].key for stage in phases}) == 1
    assert [stage.values["train"]["groups"][0]["passages"] for stage in phases] == [5, 10, 30]
    assert [stage.upstream["start"].name for stage in phases] == ["tas_b", "cl_drd_1", "cl_drd_2"]


def test_me_bert_has_one_vector_a_query_and_learns_from_its_own_negatives(surveyed):
    second = model(surveyed, "me_bert_2")
    options = second.values["representation"]
    assert (options["query_vectors"], options["passage_vectors"], options["dim"]) == (1, 3, None)
    run = drawn(surveyed, "me_bert_2").upstream["run"]
    assert (run.kind, run.upstream["passages"].upstream["model"]) == (
        "maxsim",
        model(surveyed, "me_bert"),
    )


def test_the_second_splade_learns_a_re_rankers_margins(surveyed):
    first, second = model(surveyed, "splade"), model(surveyed, "splade_distilled")
    assert (first.upstream["start"].name, second.upstream["start"].name) == (
        "bert-base-uncased",
        "cocondenser-marco",
    )
    assert second.upstream["teacher"].upstream["judge.0"].name == "ms-marco-minilm-l6"
    assert "teacher" not in first.upstream
    assert [stage.values["train"]["in_batch"] for stage in (first, second)] == [True, False]


def test_lex_mae_goes_on_with_its_own_negatives_and_then_a_re_rankers_distribution(surveyed):
    rounds = [model(surveyed, f"lex_mae_{number}") for number in (1, 2, 3)]
    assert {stage.upstream["start"].name for stage in rounds} == {"lex_mae_pretrained"}
    runs = [stage.upstream["candidates"].upstream["run"].name for stage in rounds]
    assert [name.partition(".")[0] for name in runs] == ["bm25", "lex_mae_1", "lex_mae_2"]
    terms = [stage.values["train"]["regularise"] for stage in rounds]
    assert [term["query"]["flops"] / term["passage"]["flops"] for term in terms] == [
        pytest.approx(0.75)
    ] * 3
    assert ["teacher" in stage.upstream for stage in rounds] == [False, False, True]


SMALL_SYSTEMS = ("small/rocketqa", "small/systems")


@pytest.mark.parametrize(
    "files", [SMALL_SYSTEMS, (*SMALL_SYSTEMS, "small/systems_squad")], ids=["pydocs", "squad"]
)
def test_the_systems_in_small_are_all_in_the_table(files, tmp_path, monkeypatch):
    # data of one's own, in the working directory
    write_qrels_folder(tmp_path / "data/squad", "one", ("train", "dev", "test"))
    monkeypatch.chdir(tmp_path)
    papers = ["review/table1", "rocketqav2/table2", "rocketqav2/table3"]
    plan = planned(*files, tables=["systems", *papers])
    rows = plan.tables.rows("systems")
    assert len(rows) == 68
    assert not [row for row in rows if row.absent]
    stages = upstream_first(plan.tables.requested_scores())
    assert {stage.values["source"] for stage in stages if stage.kind == "encoder"} == {"package"}
    models = {
        stage.name: stage.values["train"]["steps"] for stage in stages if stage.kind == "model"
    }
    assert models.pop("m_c") == 200  # RocketQA's judge, which has to know something
    # a T5 that is made here has read no text but this collection's
    assert {models.pop(name) for name in ("mono_t5", "duo_t5", "rank_t5", "rank_t5_encoder")} == {
        200
    }
    assert None not in models.values()
    assert max(models.values()) <= 60
    assert not any(plan.tables.absent[table] for table in papers)


def test_trainings_of_one_content_are_shared_in_small():
    plan = planned(*SMALL_SYSTEMS)
    for name, same in (
        ("colbert", "tct_teacher"),
        ("prod_0", "de_bm25neg"),
        ("tfr_softmax", "ce_bm25neg"),
    ):
        assert model(plan, name) is model(plan, same)
    assert (
        model(plan, "splade_distilled").upstream["teacher"]
        is model(plan, "cakd_de").upstream["teacher"]
    )


PACKAGED = ("multilingual-e5-small-q4", "all-mpnet-base-v2", "splade-tiny")


@pytest.fixture
def published_folders(encoder_folder, tmp_path, monkeypatch):
    """The folders that the scripts of examples/ write, of tiny models, in the working directory."""
    config = json.loads((encoder_folder / "config.json").read_text()) | {
        "max_position_embeddings": 512
    }
    for name in PACKAGED:
        folder = tmp_path / "data" / name
        shutil.copytree(encoder_folder, folder)
        (folder / "config.json").write_text(json.dumps(config))
        if name == "splade-tiny":
            tiny_sparse.masked_lm_folder(folder, folder)
            tiny_sparse.start(folder).describe(folder, 32, DualShape(True, "max", False, 1.0))
        else:
            describe_encoder(folder, 32, DualShape(True, "mean", True, 0.05))
    monkeypatch.chdir(tmp_path)


def test_published_encoders_are_searched_as_they_are(published_folders):
    plan = planned("small/zero_shot", encoders={name: {"sha256": None} for name in PACKAGED})
    assert [row.system for row in plan.tables.rows("zero_shot")] == ["BM25", "minilm", *PACKAGED]
    assert not [row for row in plan.tables.rows("zero_shot") if row.absent]
    kinds = {stage.kind for stage in upstream_first(plan.tables.requested_scores())}
    assert {"untrained", "retrieve", "retrieve_sparse"} <= kinds
    assert not kinds & {"model", "candidates"}


def test_objectives_of_pretraining_start_from_the_vectors_of_a_published_one(published_folders):
    files = ("small/pretraining", "small/pretraining_bert")
    plan = planned(*files, encoders={"bert-tiny": {"sha256": None}})
    assert not [row for row in plan.tables.rows("pretraining") if row.absent]
    stages = upstream_first(plan.tables.requested_scores())
    pretrained = [stage for stage in stages if stage.kind == "pretrain"]
    assert len(pretrained) == 11
    assert {stage.upstream["start"].name for stage in pretrained} == {"bert-tiny"}
    assert not any("representation" in stage.values for stage in pretrained)  # one vector a text


def test_systems_that_weigh_terms_may_start_from_a_published_one(published_folders):
    names = ("splade", "splade_distilled", "spade_1")
    models, encoders = (
        {name: {"init": "splade-tiny"} for name in names},
        {"splade-tiny": {"sha256": None}},
    )
    plan = planned(*SMALL_SYSTEMS, models=models, encoders=encoders)
    for name in names:
        assert model(plan, name).upstream["start"].name == "splade-tiny"
        assert model(planned(*SMALL_SYSTEMS), name).upstream["start"].name == "minilm_mlm"
    assert not [row for row in plan.tables.rows("systems") if row.absent]


def test_own_data_lets_data_and_dev_decide_the_sizes_of_the_default_s_models():
    plan = planned(recipes=["dureader_retrieval", "rocketqav2", "own_data"])
    for name in ("de_bm25neg", "ce_bm25neg", "ce_deneg"):
        train = model(plan, name).values["train"]
        assert (train["choose"], train["sizes"]) == ("dev", "data")
    joint = model(plan, "rocketqav2").values["train"]
    assert (joint["choose"], joint["list_size"], joint["budget_minutes"]) == ("dev", 8, 5)
    assert "sizes" not in joint
    assert plan.split == "test"
    assert plan.check("all") == []  # pydocs has a dev split
