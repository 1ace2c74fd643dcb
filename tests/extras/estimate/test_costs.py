"""Estimates follow from counts: worked out by hand for one training, and bounded by what was made."""

import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from building import make_stage
from pytest import approx

from tandem.config.merging import merged
from tandem.errors import UserError
from tandem.extras.estimate.estimate import (
    describe_longest_part,
    estimate,
    estimate_stage,
    estimate_stages,
    find_uncounted_splits,
    is_unknown,
    new_setting,
    sum_costs,
)
from tandem.extras.estimate.resources import RATES, START_ENVIRONMENTS, Hardware, Volumes, Work
from tandem.extras.training_budgets import OPERATIONS_PER_SECOND
from tandem.plan.graph import upstream_first
from tandem.plan.plan import Plan
from tandem.plan.reported import run_depth
from tandem.plan.sizes import EncoderShape

ROOT = Path(__file__).parents[3]
BERT = {"layers": 12, "hidden": 768, "feed_forward": 3072, "vocabulary": 30522}
MINE = {
    "dataset": "big",
    "datasets": {
        "big": {
            "source": "ir_datasets", "id": "msmarco-passage", "language": "en",
            "counts": {"passages": 1000, "train": 500, "dev": 10}, "tokens": {"passage": 60, "query": 8},
        }
    },
    "encoder": "b",
    "encoders": {"b": {"source": "hub", "name": "org/b", "revision": "main", "pooling": "cls", "shape": BERT}},
    "models": {
        "de": {
            "objective": "dual",
            "candidates": {"from": "bm25", "depth": 20},
            "train": {"choose": "last", "queries_per_batch": 10, "list_size": 4, "epochs": 2, "in_batch": True},
        }
    },
    "audits": {"retriever": None},
    "execution": {"graph_tokens": 1000000},
}  # fmt: skip


@pytest.fixture
def plan():
    return Plan(MINE, ROOT)


@pytest.fixture
def machine():
    work = dict.fromkeys(("encode", "rerank", "dual", "cross", "joint"), 0.5)
    rates = dict.fromkeys(RATES, math.inf) | {"lines": 100.0}
    starts = dict.fromkeys(START_ENVIRONMENTS, 1.0) | {"models": 3.0}
    return Hardware("mine", 2.0, work, 768, rates, starts, 2, 0, {})


def test_shards_share_reading_a_large_corpus_and_the_stage_copies_it(machine):
    """A million passages a second are read, two and a half copied; ir_datasets is shared from 33 million on."""
    reading = replace(machine, rates=machine.rates | {"passages": 1e6})
    seconds = {}
    for passages, shards in [(40_000_000, 1), (40_000_000, 4), (1_000_000, 4)]:
        config = merged(
            MINE,
            {
                "datasets": {"big": {"counts": {"passages": passages}}},
                "execution": {"shards": shards},
            },
        )
        plan = Plan(config, ROOT)
        stage = plan.planner.dataset("big")
        seconds[passages, shards] = estimate_stage(
            stage, new_setting(plan.settings, reading), reading
        ).parts["core"]
    assert seconds == {
        (40_000_000, 1): approx(40),
        (40_000_000, 4): approx(40 / 4 + 40 / 2.5),
        (1_000_000, 4): approx(1),
    }


def test_a_training_by_hand(plan, machine):
    stage = plan.planner.model("de", "test")
    cost = estimate_stage(stage, new_setting(plan.settings, machine), machine)
    about = Volumes(1000, {}, {"passage": 60.0, "query": 8.0})
    query, passage = about.tokens("query", 32), about.tokens("passage", 128)
    each = 2 * (4 * 768**2 + 2 * 768 * 3072)

    def forward(texts, n):
        return texts * n * 12 * (each + 4 * n * 768)

    steps = 100  # 500 lists, twice, ten at once
    by_hand = steps * 3 * (forward(10, query + 2) + forward(40, passage + 2))
    assert cost.operations == approx(by_hand)
    assert cost.seconds == approx(by_hand / 1e12)
    assert cost.wall == approx(by_hand / 1e12 + 3)
    assert cost.measured is None


def test_in_batch_a_cross_encoder_reads_a_positive_of_each_other_query_too(machine):
    def operations(**train):
        entry = {"objective": "cross", "candidates": {"from": "bm25", "depth": 20}}
        entry["train"] = {"choose": "last", "queries_per_batch": 10, "steps": 7, **train}
        plan = Plan(merged(MINE, {"models": {"ce": entry}}), ROOT)
        stage = plan.planner.model("ce", "test")
        return estimate_stage(stage, new_setting(plan.settings, machine), machine).operations

    assert operations(list_size=4, in_batch=True) == approx(operations(list_size=13))


@pytest.mark.parametrize(("one_list", "steps"), [(False, 300), (True, 100)])
def test_lists_that_become_one_are_visited_once(one_list, steps, machine):
    also = [{"from": "random", "depth": 20, "queries": 100 * count} for count in (4, 5)]
    also.append({"from": "random", "depth": 30, "queries": 100})
    candidates = {"from": "bm25", "depth": 20, "also": also, "one_list": one_list}
    plan = Plan(merged(MINE, {"models": {"de": {"candidates": candidates}}}), ROOT)
    stage = plan.planner.model("de", "test")
    # 500 + 400 + 500 + 100 lists or 500, twice, ten at once
    assert estimate_stage(stage, new_setting(plan.settings, machine), machine).steps == steps


@pytest.mark.parametrize("bits", [None, 4])
def test_adapters_need_little_memory_and_spare_the_gradients_of_the_weights_that_stay(
    bits, plan, machine
):
    lora = Plan(merged(MINE, {"models": {"de": {"lora": {"rank": 8, "bits": bits}}}}), ROOT)
    whole, adapted = (
        estimate_stage(
            variant.planner.model("de", "test"), new_setting(variant.settings, machine), machine
        )
        for variant in (plan, lora)
    )
    assert adapted.operations == approx(whole.operations * 2 / 3)

    matrices = 12 * (4 * 768**2 + 2 * 768 * 3072)
    adapters = 12 * 8 * (4 * 2 * 768 + 2 * (768 + 3072))
    # a gradient and two moments of four bytes each; a weight of four bits has half a byte
    spared = 12 * EncoderShape(**BERT).parameters + (3.5 * matrices if bits else 0)
    assert whole.memory - adapted.memory == approx(spared - 16 * adapters)


def test_a_sparse_encoder_also_computes_logits_over_the_vocabulary(plan, machine):
    sparse = Plan(merged(MINE, {"models": {"de": {"representation": "sparse"}}}), ROOT)
    costs = [
        estimate_stage(
            variant.planner.model("de", "test"), new_setting(variant.settings, machine), machine
        )
        for variant in (plan, sparse)
    ]
    about = Volumes(1000, {}, {"passage": 60.0, "query": 8.0})
    tokens = 10 * (about.tokens("query", 32) + 2) + 40 * (about.tokens("passage", 128) + 2)
    assert costs[1].operations - costs[0].operations == approx(100 * 3 * tokens * 2 * 768 * 30522)


def test_each_bucket_of_uhd_bert_has_a_layer_and_weights_of_its_own(machine):
    def passages(**options):
        representation = {"type": "uhd", "width": 5000, "winners": 3, **options}
        plan = Plan(merged(MINE, {"models": {"de": {"representation": representation}}}), ROOT)
        stage = plan.planner.run("de", "dev", "test").upstream["passages"]
        cost = estimate_stage(stage, new_setting(plan.settings, machine), machine)
        return cost.operations, cost.disk

    about = Volumes(1000, {}, {"passage": 60.0, "query": 8.0})
    tokens = about.tokens("passage", 128) + 2
    last, three = passages(), passages(layers=[4, 8, 12])
    assert three[0] - last[0] == approx(2 * 1000 * tokens * 2 * 768 * 5000)
    assert (last[1], three[1]) == (approx(6 * 1000 * 3 * tokens), approx(3 * 6 * 1000 * 3 * tokens))


def test_dev_costs_a_forward_pass_of_its_lists_eleven_times(machine):
    def operations(counts=None, **train):
        entry = MINE["datasets"]["big"] | ({"counts": counts} if counts else {})
        plan = Plan(
            merged(MINE | {"datasets": {"big": entry}}, {"models": {"de": {"train": train}}}), ROOT
        )
        cost = estimate_stage(
            plan.planner.model("de", "test"), new_setting(plan.settings, machine), machine
        )
        return cost.operations, cost.steps

    last, steps = operations()
    about = Volumes(1000, {}, {"passage": 60.0, "query": 8.0})
    query, passage = about.tokens("query", 32) + 2, about.tokens("passage", 128) + 2
    each = 2 * (4 * 768**2 + 2 * 768 * 3072)

    def forward(queries):
        """Operations of encoding dev queries and 20 passages of each."""
        texts = (queries, query), (20 * queries, passage)
        return 12 * sum(n * length * (each + 4 * length * 768) for n, length in texts)

    lists = forward(10)  # dev has no more
    assert steps == 100
    assert operations(choose="dev") == (approx(last + 11 * lists), steps)
    assert operations(validate_every=50) == (approx(last + 3 * lists), steps)
    # at 0, 40, 80 and the end
    assert operations(validate_every=40) == (approx(last + 4 * lists), steps)
    assert operations(choose="dev", validation_queries=5) == (approx(last + 11 * forward(5)), steps)
    # seven steps of 70 queries leave no room for ten validations: one each, and the start's
    small = {"passages": 1000, "train": 70, "dev": 10}
    few, seven = operations(small, epochs=1)
    assert operations(small, choose="dev", epochs=1) == (approx(few + 8 * lists), seven)
    # a tenth of 500 training queries becomes dev: 450 are trained on, twice
    drawn = {"passages": 1000, "train": 500}
    assert operations(drawn, choose="dev") == (approx(0.9 * last + 11 * forward(50)), 90)
    minutes = 4 * 11 * lists / 60 / OPERATIONS_PER_SECOND  # a third pays for more than eleven
    spent = minutes * 60 * OPERATIONS_PER_SECOND
    assert operations(choose="dev", budget_minutes=minutes)[0] == approx(
        spent, abs=last / steps + lists
    )


def test_in_narrow_layers_less_of_the_time_is_of_products(machine):
    assert machine.seconds(Work("dual", 2e12, width=768)) == approx(2.0)  # products take one
    assert machine.seconds(Work("dual", 2e12, width=384)) == approx(1.0 + 2 * 1.0)
    assert machine.seconds(Work("dual", 2e12, width=1536)) == approx(2.0)
    assert machine.seconds(Work(rows=(("lines", 100.0),))) == 0


@pytest.mark.parametrize(
    ("changed", "times"), [({}, 2 * 5 + 4), ({"lora": {}}, 0), ({"freeze_layers": 1}, 0)]
)
def test_micro_batches_and_steps_pass_a_gradient_of_the_vocabulary(changed, times, machine):
    """Ten queries and their 40 passages are cut into five micro-batches."""
    de = MINE["models"]["de"]
    inside = {key: changed[key] for key in ("freeze_layers",) if key in changed}
    outside = {key: changed[key] for key in ("lora",) if key in changed}
    settings = MINE | {"models": {"de": de | outside | {"train": de["train"] | inside}}}
    plan = Plan(settings, ROOT)
    stage = plan.planner.model("de", "test")
    setting = new_setting(plan.settings, machine)
    about = Volumes(1000, {}, {"passage": 60.0, "query": 8.0})
    query, passage = about.tokens("query", 32) + 2, about.tokens("passage", 128) + 2
    micro_tokens = int((10 * query + 40 * passage) / 4.5)
    fewer = setting.execution.model_copy(update={"micro_tokens": micro_tokens})
    slow = replace(machine, rates=machine.rates | {"updated": 1e9})
    free = estimate_stage(stage, replace(setting, execution=fewer), machine)
    passed = estimate_stage(stage, replace(setting, execution=fewer), slow)
    assert passed.seconds - free.seconds == approx(100 * times * 30522 * 768 / 1e9, abs=1e-6)


def test_caching_gradients_costs_another_forward_pass(plan, machine):
    about = new_setting(plan.settings, machine)
    stage = plan.planner.model("de", "test")
    whole = estimate_stage(stage, about, machine)
    less = replace(about, execution=about.execution.model_copy(update={"graph_tokens": 100}))
    cached = estimate_stage(stage, less, machine)
    assert cached.operations == approx(whole.operations * 4 / 3)
    assert cached.memory < whole.memory


def test_devices_share_the_wall_time_alone(plan, machine):
    about = new_setting(plan.settings, machine)
    stage = plan.planner.model("de", "test")
    single = estimate_stage(stage, about, machine)
    more = replace(about, execution=about.execution.model_copy(update={"devices": 4}))
    four = estimate_stage(stage, more, machine)
    assert four.seconds == single.seconds
    assert four.wall - 3 == approx((single.wall - 3) / 4)


def test_mean_length_of_cut_texts():
    drawn = 30 + np.random.default_rng(0).exponential(30, 400_000)
    about = Volumes(1, {}, {"passage": 60.0})
    for limit in (20, 64, 128, 512):
        assert about.tokens("passage", limit) == approx(np.minimum(drawn, limit).mean(), rel=5e-3)


def test_a_stage_is_counted_once_and_after_what_it_needs(plan):
    stage = plan.planner.model("de", "test")
    order = [above.key for above in upstream_first([stage, stage])]
    assert len(order) == len(set(order))
    assert order[-1] == stage.key
    assert all(order.index(above.key) < order.index(stage.key) for above in stage.upstream.values())


def test_a_training_in_parts_costs_what_it_costs_in_one_and_is_validated_on_less(machine):
    def planned(**train):
        de = MINE["models"]["de"]
        return Plan(MINE | {"models": {"de": de | {"train": de["train"] | train}}}, ROOT)

    whole, parts = planned(), planned(checkpoints=4, choose="dev")
    undivided = estimate_stage(
        whole.planner.model("de", "test"), new_setting(whole.settings, machine), machine
    )
    stages = upstream_first([parts.planner.model("de", "test")])
    about = new_setting(parts.settings, machine)
    costs = [
        estimate_stage(stage, about, machine) for stage in stages if stage.kind == "checkpoint"
    ]
    assert sum(part.operations for part in costs) == approx(undivided.operations)
    assert estimate_stage(stages[-1], about, machine).operations == 0
    (small,) = [about.sizes(stage) for stage in stages if stage.values.get("source") == "reduced"]
    # ten dev queries bring at most 101 passages each, but there are only 1000
    assert (small.passages, small.queries) == (1000, {"dev": 10})


def test_sums(plan, machine):
    about = new_setting(plan.settings, machine)
    stages = upstream_first([plan.planner.model("de", "test")])
    costs = list(estimate_stages(stages, about, machine).values())
    whole = sum_costs(costs)
    assert whole.wall == approx(sum(cost.wall for cost in costs))
    assert whole.memory == max(cost.memory for cost in costs)


def test_what_is_written_is_counted_and_what_binds_is_named(plan, machine):
    run = plan.planner.run("bm25", "dev", "test")
    slow = replace(machine, rates=machine.rates | {"run": 10.0, "files": 20.0})
    cost = estimate_stage(run, new_setting(plan.settings, slow), slow)
    assert cost.parts == {
        "models": 0,
        "core": approx(cost.disk / 10),
        "files": approx(cost.disk / 20),
        "start": 1,
    }
    assert describe_longest_part({run: cost}).startswith("work without a model takes ")
    assert describe_longest_part({run: cost}).endswith(": more `execution.shards` share it")
    fast = {run: estimate_stage(run, new_setting(plan.settings, machine), machine)}
    assert describe_longest_part(fast).startswith("starting jobs takes 1 s of 1 s, most in bm25")


def test_an_entry_with_fewer_queries_costs_fewer(machine):
    entry = MINE["datasets"]["big"] | {"train_queries": 100}
    plan = Plan(MINE | {"datasets": {"big": entry}}, ROOT)
    about = new_setting(plan.settings, machine)
    assert about.sizes(plan.planner.dataset("big")).queries == {"train": 100, "dev": 10}


def test_a_union_is_as_large_as_its_parts_together(machine):
    big = MINE["datasets"]["big"]
    counts = {"passages": 3000, "train": 1500, "train_qrels": 4500, "test": 20}
    parts = {"more": {**big, "counts": counts, "tokens": {"passage": 100, "query": 16}}}
    both = {"source": "union", "of": ["big", "more"]}
    plan = Plan(merged(MINE, {"datasets": {**parts, "both": both}}), ROOT)
    size = new_setting(plan.settings, machine).sizes(plan.planner.dataset("both"))
    assert (size.passages, size.queries) == (4000, {"train": 2000, "dev": 10, "test": 20})
    assert size.positives == {"train": 500 + 4500, "dev": 10, "test": 20}
    assert size.lengths["passage"] == approx((1000 * 60 + 3000 * 100) / 4000)
    assert size.lengths["query"] == approx((510 * 8 + 1520 * 16) / 2030)


def test_a_judgement_of_an_irrelevant_passage_is_no_positive(
    machine, plan_of, beir, tmp_path, monkeypatch
):
    path = Path(beir("judged", ["test"]))
    with (path / "corpus.jsonl").open("a") as corpus:
        corpus.write('{"_id": "other", "text": "of something else"}\n')
    with (path / "qrels/test.tsv").open("a") as judgements:
        judgements.write("judged\tother\t0\n")
    monkeypatch.chdir(tmp_path)
    plan = plan_of({"judged": {"source": "beir", "path": str(path)}}, "judged")
    stage = plan.planner.dataset()
    make_stage(stage)
    size = new_setting(plan.settings, machine).sizes(stage)
    assert size.positives == size.queries == {"test": 1}


def test_a_split_without_queries_has_no_positives(machine):
    counts = {"passages": 1000, "train": 0, "train_qrels": 0, "dev": 10}
    plan = Plan(merged(MINE, {"datasets": {"big": {"counts": counts}}}), ROOT)
    size = new_setting(plan.settings, machine).sizes(plan.planner.dataset("big"))
    assert size.positives == {"train": 0}


def test_unknown_sizes_are_one_line(machine):
    encoders = {"b": {"source": "hub", "name": "org/b", "revision": "main", "pooling": "cls"}}
    plan = Plan(MINE | {"encoders": encoders}, ROOT)
    with pytest.raises(
        UserError, match=r"encoder b: its sizes are not known.*encoders\.<name>\.shape"
    ):
        estimate_stage(
            plan.planner.model("de", "test"), new_setting(plan.settings, machine), machine
        )
    datasets = {"big": {k: v for k, v in MINE["datasets"]["big"].items() if k != "counts"}}
    plan = Plan(MINE | {"datasets": datasets}, ROOT)
    with pytest.raises(UserError, match="dataset big: its size is not known"):
        estimate_stage(
            plan.planner.model("de", "test"), new_setting(plan.settings, machine), machine
        )


def test_unknown_hardware_is_one_line():
    with pytest.raises(
        UserError, match=r"execution\.hardware: h2000 is unknown; did you mean h200\?"
    ):
        Hardware.load(ROOT / "config/hardware", "h2000")


@pytest.mark.parametrize(
    ("figure", "text", "message"),
    [
        ("start_seconds: .*", "start_seconds: 8", "start_seconds.data is missing"),
        ("peak_tflops: .*", "", "peak_tflops is missing"),
        (
            "layers_tflops: .*",
            "layers_tflops: null",
            "layers_tflops is None; allowed: a number above 0",
        ),
        ("peak_tflops: .*", "peak_tflops: 0", "peak_tflops is 0; allowed: a number above 0"),
        ("tokens: 770000", "tokens: -1", "rates.tokens is -1; allowed: a number above 0"),
        ("joint: 0.47", "joint: fast", "mfu.joint is 'fast'; allowed: a number above 0"),
        ("held_mib: .*", "held_mib: .nan", "held_mib is nan; allowed: a number above 0"),
    ],
)
def test_a_figure_that_is_missing_or_not_above_0_is_named(tmp_path, figure, text, message):
    entry = (ROOT / "config/hardware/cpu.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(re.sub(figure, text, entry))
    with pytest.raises(UserError, match=f"mine.yaml: {re.escape(message)}"):
        Hardware.load(tmp_path, "mine")


@pytest.mark.parametrize(
    "path", sorted((ROOT / "config/hardware").glob("*.yaml")), ids=lambda path: path.stem
)
def test_every_entry_is_whole(path):
    hardware = Hardware.load(path.parent, path.stem)
    assert 0 < min(hardware.mfu.values()) <= max(hardware.mfu.values()) < 1


def test_a_language_models_cost_is_not_known(machine):
    model = {"llm_rerankers": {"judge": {"method": "yes_no", "model": "org/judge"}}}
    plan = Plan(MINE | model, ROOT)
    assert is_unknown(plan.planner.run("bm25+judge", "dev", "test"))
    assert not is_unknown(plan.planner.run("bm25", "dev", "test"))


def test_planning_and_the_command_import_only_what_they_need():
    plan = (
        "import sys; from tandem import ROOT; from tandem.config.merging import gathered; "
        "from tandem.plan.plan import Plan; Plan(gathered([], ROOT), ROOT); "
        "assert not {'torch', 'pyarrow', 'requests'} & sys.modules.keys()"
    )
    words = ["config/msmarco.yaml", "--hardware", "h200"]
    run = f"from tandem.cli import run; run({['estimate', *words]})"
    line = f"{plan}; {run}; assert not {{'torch', 'requests'}} & sys.modules.keys()"
    done = subprocess.run(
        [sys.executable, "-c", line], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "| model rocketqav2 |" in done.stdout
    assert done.stdout.count("| **all** |") == 1
    assert "not measured: " in done.stdout


def test_windows_are_as_many_as_documents_of_the_mean_length_have(machine):
    """60 tokens are 46.2 words: 1 + 26.2 / 10 windows of 20 words, and a pair each where all are scored."""
    datasets = {
        **MINE["datasets"],
        "cut": {"source": "windows", "of": "big", "length": 20, "stride": 10},
    }
    models = {
        **MINE["models"],
        "ce": {"objective": "cross", "candidates": {"from": "bm25", "depth": 20}},
    }
    aggregations = {
        name: {"of": "bm25", "by": "ce", "windows": "cut", "method": method}
        for name, method in (("all", "max"), ("one", "first"))
    }
    more = {
        "datasets": datasets,
        "models": models,
        "aggregations": aggregations,
        "depth": {"train": 20, "dev": 100},
    }
    plan = Plan(MINE | more, ROOT)
    about = new_setting(plan.settings, machine)
    assert about.sizes(plan.planner.dataset("cut")).passages == 3615
    every, first = (
        estimate_stage(plan.planner.run(name, "dev", "test"), about, machine)
        for name in aggregations
    )
    assert every.operations == approx(3.615 * first.operations)
    searched = plan.planner.run("bm25", "dev", "test", "cut")
    assert searched.values["depth"] == 10 * plan.planner.run("bm25", "dev", "test").values["depth"]


def test_an_ensemble_costs_what_its_members_cost_and_a_fusion_its_lines(machine):
    cross = {"objective": "cross", "candidates": {"from": "bm25", "depth": 20}}
    models = {**MINE["models"], "one": cross, "other": {**cross, "train": {"lr": 1e-3}}}
    more = {"models": models, "ensembles": {"both": {"of": ["one", "other"]}}, "depth": {"dev": 50}}
    plan = Plan(MINE | more | {"fusions": {"rrf": {"of": ["bm25", "de"]}}}, ROOT)
    about = new_setting(plan.settings, machine)
    alone, both = (
        estimate_stage(plan.planner.run(f"rrf+{name}", "dev", "test"), about, machine)
        for name in ("one", "both")
    )
    assert both.operations == approx(2 * alone.operations)
    fused = estimate_stage(plan.planner.run("rrf", "dev", "test"), about, machine)
    depth = run_depth(plan.planner.ctx, "dev", "big")  # 10 queries, two runs, 100 lines a second
    assert fused.wall == approx(1 + 10 * 2 * depth / 100)


def test_a_judge_that_is_calibrated_also_scores_the_dev_queries(machine):
    cross = {"objective": "cross", "candidates": {"from": "bm25", "depth": 20}}

    def drawing(**denoise):
        drawn = {"from": "bm25", "depth": 20, "denoise": {"by": "ce", **denoise}}
        models = {"ce": cross, "de": MINE["models"]["de"] | {"candidates": drawn}}
        plan = Plan(MINE | {"models": models}, ROOT)
        stage = plan.planner.model("de", "test").upstream["candidates"]
        return estimate_stage(stage, new_setting(plan.settings, machine), machine).operations

    # 21 pairs of each of 500 training queries, and of 10 dev queries
    assert drawing(calibrate="dev") / drawing() == approx(510 / 500)
    assert drawing(calibrate="dev", calibrate_queries=4) / drawing() == approx(504 / 500)


@pytest.mark.parametrize("text", ["dataset: mine\n", "[1]", ""])
def test_a_configuration_that_is_no_json_is_one_line(tmp_path, text):
    (tmp_path / "mine.json").write_text(text)
    with pytest.raises(
        UserError, match=r"mine\.json: holds no mapping in JSON; it is a whole configuration"
    ):
        estimate(whole=tmp_path / "mine.json")


@pytest.mark.parametrize(
    ("counts", "uncounted"),
    [
        ({"passages": 1000}, [("big", "dev"), ("big", "train")]),
        ({"passages": 0, "train": 5, "dev": 3}, []),
    ],
)
def test_a_collection_whose_queries_nobody_counted_costs_no_search_and_is_named(
    machine, counts, uncounted
):
    entry = MINE["datasets"]["big"] | {"counts": counts}
    late = {"models": {"de": {"representation": {"type": "multi"}}}}
    plan = Plan(merged(MINE | {"datasets": {"big": entry}}, late), ROOT)
    about = new_setting(plan.settings, machine)
    stages = upstream_first(
        [plan.planner.run("de", "dev", "test"), plan.planner.run("de@hnsw", "dev", "test")]
    )
    for stage in stages:
        estimate_stage(stage, about, machine)
    assert find_uncounted_splits(stages, about) == uncounted


def test_a_training_that_is_validated_on_a_reranked_run_has_a_cost(machine):
    models = {"ce": {"objective": "cross", "candidates": {"from": "bm25", "depth": 20}}}
    models["de"] = {"validation": {"from": "bm25+ce"}, "train": {"choose": "dev"}}
    plan = Plan(merged(MINE, {"models": models}), ROOT)
    model = plan.planner.model("de", "test")
    assert model.upstream["validation"].kind == "rerank"
    assert estimate_stage(model, new_setting(plan.settings, machine), machine).operations > 0
