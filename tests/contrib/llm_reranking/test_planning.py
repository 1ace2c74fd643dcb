"""A language model re-ranks: its stage, its key, its secrets, its mistakes, and what a run says of its time."""

import shlex

import pytest

from tandem import ROOT
from tandem.contrib.llm_reranking.options import RerankLlmParams
from tandem.errors import UserError
from tandem.extras.language_models.options import Endpoint
from tandem.extras.running.run_progress import Event, Forecast, Run
from tandem.extras.targets import Configuration
from tandem.plan.plan import Plan
from tandem.stages.base import parse_value
from tandem.store.job import read_job

QWEN = {"method": "yes_no", "form": "qwen3", "model": "Qwen/Qwen3-Reranker-0.6B"}
GPT = {
    "method": "listwise",
    "model": "gpt",
    "endpoint": {"url": "http://localhost:8000/v1", "key": "THE_KEY"},
}


@pytest.fixture
def with_llm(configured):
    """`with_llm(entry)`: the plan of the default with an entry `llm` of `llm_rerankers`."""
    return lambda entry, name="llm": Plan({**configured(), "llm_rerankers": {name: entry}}, ROOT)


def test_a_language_model_reranks(with_llm):
    planner = with_llm(QWEN).planner
    stage = planner.run("bm25+llm", "test", "here")
    assert (stage.kind, stage.name, stage.upstream.keys()) == (
        "rerank_llm",
        "bm25+llm.test",
        {"dataset", "run"},
    )
    assert stage.values["depth"] == planner.run("bm25+ce_bm25neg", "test", "here").values["depth"]
    assert stage.values["form"] == "qwen3"
    chained = planner.run("bm25+ce_bm25neg+llm", "test", "here")
    assert chained.upstream["run"].kind == "rerank"


def test_a_model_in_this_process_gets_a_gpu_and_a_server_s_none(with_llm):
    for entry, gpus in ((QWEN, 1), (GPT, 0)):
        plan = with_llm(entry)
        assert (
            plan.placement.gpus("rerank_llm", plan.planner.run("bm25+llm", "test", "here").key)
            == gpus
        )


def test_how_a_server_is_asked_is_in_no_key(with_llm):
    first = with_llm(GPT).planner.run("bm25+llm", "test", "here")
    patient = {
        **GPT,
        "endpoint": {**GPT["endpoint"], "timeout": 600, "key": "OTHER", "at_once": 32},
    }
    assert with_llm(patient).planner.run("bm25+llm", "test", "here").key == first.key
    assert with_llm({**GPT, "window": 12}).planner.run("bm25+llm", "test", "here").key != first.key
    elsewhere = {**GPT, "endpoint": {"url": "https://api.example.org/v1"}}
    assert with_llm(elsewhere).planner.run("bm25+llm", "test", "here").key != first.key
    assert "THE_KEY" not in first.args
    words = shlex.split(f"{first.args} {first.how}")
    flags = {flag: parse_value(value) for flag, value in zip(words[::2], words[1::2], strict=True)}
    params = {
        flag.removeprefix("--params."): value
        for flag, value in flags.items()
        if flag.startswith("--params.")
    }
    assert RerankLlmParams.model_validate(params) == first.params
    assert Endpoint(**flags["--run.endpoint"]) == Endpoint(**GPT["endpoint"])


def test_another_model_in_a_folder_is_another_run(with_llm, tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    entry = {"method": "listwise", "model": str(tmp_path)}
    key = with_llm(entry).planner.run("bm25+llm", "test", "here").key
    (tmp_path / "model.safetensors").write_bytes(b"others")
    assert with_llm(entry).planner.run("bm25+llm", "test", "here").key != key


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        (
            {**QWEN, "model": "qwen"},
            "llm_rerankers.llm.model is qwen, neither a folder nor organisation/name",
        ),
        (
            {**QWEN, "method": "votes"},
            "llm_rerankers.llm.method is 'votes'; allowed: yes_no, listwise, pairwise",
        ),
        ({**GPT, "step": 20}, "llm_rerankers.llm.step is 20; allowed: < window (20)"),
        (
            {**GPT, "endpoint": {"url": "localhost"}},
            'llm_rerankers.llm.endpoint.url is "localhost"',
        ),
        (
            {**QWEN, "endpoint": GPT["endpoint"]},
            "llm_rerankers.llm.form is qwen3, but an endpoint is asked by chat alone",
        ),
        (
            {**GPT, "precision": "bf16"},
            "llm_rerankers.llm.precision is bf16, but the endpoint has its own model; leave it out",
        ),
        (
            {**QWEN, "temperature": 0.5},
            "llm_rerankers.llm.temperature is set, but a model in this process",
        ),
        (
            {**QWEN, "extra_body": {"a": 1}},
            "llm_rerankers.llm.extra_body is set, but a model in this process",
        ),
        (
            {**QWEN, "chat_template_kwargs": {"a": 1}},
            "llm_rerankers.llm.chat_template_kwargs is set, but form qwen3",
        ),
        ({**GPT, "extra_body": {"max_tokens": 9}}, "llm_rerankers.llm.extra_body has max_tokens"),
        ({**GPT, "extra_body": {"a": {"b.c": 9}}}, "llm_rerankers.llm.extra_body has a name 'b.c'"),
        ({**QWEN, "unlikely_below": 5}, "llm_rerankers.llm.unlikely_below is 5; allowed: ≤ 1"),
    ],
)
def test_a_mistake_in_a_language_model_is_one_line(with_llm, entry, line):
    with pytest.raises(UserError) as error:
        with_llm(entry)
    assert line in str(error.value)


def test_a_key_in_place_of_its_variable_is_not_shown(with_llm):
    with pytest.raises(
        UserError, match=r"llm_rerankers.llm.endpoint.key is not the name of an .* variable"
    ) as error:
        with_llm({**GPT, "endpoint": {**GPT["endpoint"], "key": "sk-proj-0123"}})
    assert "sk-proj" not in str(error.value)


def test_secrets_of_an_address_are_in_no_flag_and_in_the_environment(with_llm, monkeypatch):
    url = "http://me:hunter2hunter2@localhost:8000/v1?api_key=abcd"
    stage = with_llm({**GPT, "endpoint": {"url": url}}).planner.run("bm25+llm", "test", "here")
    words = shlex.split(f"{stage.args} {stage.how}")
    assert not {"hunter2", "abcd"} & {
        part for word in words for part in ("hunter2", "abcd") if part in word
    }
    params = [
        part
        for part in zip(words[::2], words[1::2], strict=True)
        if part[0].startswith(("--params.", "--run."))
    ]
    line = [word for part in params for word in part] + [
        "--out",
        "results/x/rerank_llm/a-0123456789/stage.json",
    ]
    with pytest.raises(UserError, match="the environment variable TANDEM_SECRET_.* is not set"):
        read_job("rerank_llm", line)
    for name, value in stage.secrets.items():
        monkeypatch.setenv(name, value)
    job = read_job("rerank_llm", line)
    assert (job.params.url, job.execution.endpoint["url"]) == (url, url)


def test_options_of_a_request_are_the_same_from_a_file_and_from_the_command_line(with_llm):
    """Snakemake hands over what is nested in `--config` as text, and the text `false` is true for a template."""
    typed, text = (
        {"enable_thinking": False, "depth": {"x": None}},
        {"enable_thinking": "False", "depth": {"x": "null"}},
    )
    stages = [
        with_llm({**GPT, "chat_template_kwargs": kwargs}).planner.run("bm25+llm", "test", "here")
        for kwargs in (typed, text)
    ]
    assert stages[0].key == stages[1].key
    assert stages[0].params.chat_template_kwargs == typed
    words = shlex.split(stages[0].args)
    flags = dict(zip(words[::2], words[1::2], strict=True))
    assert flags["--params.chat_template_kwargs.enable_thinking"] == "false"


def test_options_that_say_what_is_so_anyway_are_in_no_key(with_llm):
    plain = with_llm(GPT).planner.run("bm25+llm", "test", "here")
    neutral = {
        "chat_template_kwargs": {},
        "max_completion_tokens": None,
        "temperature": 0.0,
        "extra_body": {},
    }
    assert with_llm({**GPT, **neutral}).planner.run("bm25+llm", "test", "here").key == plain.key
    for option in ({"temperature": None}, {"max_completion_tokens": 9}, {"extra_body": {"a": 1}}):
        assert with_llm({**GPT, **option}).planner.run("bm25+llm", "test", "here").key != plain.key


def test_a_pairwise_model_compares_the_first_passages(with_llm):
    duo = {"method": "pairwise", "form": "duot5", "model": "castorini/duot5-base-msmarco"}
    for top, depth in ((4, 4), (500, None)):
        planner = with_llm({**duo, "top": top}).planner
        stage = planner.run("bm25+llm", "test", "here")
        assert stage.values["depth"] == (depth or planner.settings.rerank.depth)
        assert "passes" not in stage.values  # so that keys of other methods stay what they were
    assert (
        with_llm({**duo, "passes": 3}).planner.run("bm25+llm", "test", "here").values["passes"] == 3
    )
    with pytest.raises(UserError, match=r"llm_rerankers.llm.passes is 10; allowed: < top \(10\)"):
        with_llm({**duo, "passes": 10})
    with pytest.raises(
        UserError, match=r"llm_rerankers.llm.form is duot5, but an endpoint is asked by chat alone"
    ):
        with_llm({**duo, "endpoint": GPT["endpoint"]})


def test_an_order_of_passages_is_not_cut(configured):
    keys = {"llm_rerankers": {"llm": GPT}, "pipelines": {"best": {"of": ["bm25", "bm25+llm"]}}}
    with pytest.raises(UserError, match="pipelines.best.of: llm orders passages together"):
        Plan({**configured(), **keys}, ROOT)


def test_a_language_model_has_a_name_of_its_own(with_llm):
    with pytest.raises(UserError, match="llm_rerankers.ce_deneg has the name of models.ce_deneg"):
        with_llm(QWEN, "ce_deneg")


def test_a_language_model_gives_no_time_until_it_has_answered(with_llm, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    run = with_llm(QWEN).planner.run("bm25+llm", "test", "here")
    plan = Configuration([ROOT / "config/msmarco.yaml"]).plan()
    score = plan.planner.score("bm25", "here", "msmarco")
    forecast = Forecast(plan, [run, score])
    numbers = {"event": "run_info", "stats": {"rerank_llm": 1, "score": 1, "total": 2}}
    wildcards = {"dataset": run.dataset, "kind": run.kind, "key": run.key}
    begun = {
        "event": "job_info",
        "jobid": 1,
        "rule_name": "rerank_llm",
        "wildcards": wildcards,
        "log": ["log.txt"],
    }
    progress = Run()
    for event in (numbers, begun):
        progress.take(Event.model_validate(event))
    assert forecast(progress) is None
    progress.take(Event.model_validate({"event": "job_finished", "job_id": 1}))
    assert forecast(progress) is not None
