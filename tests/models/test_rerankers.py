"""Published cross-encoders: the scores of transformers and sentence-transformers, whatever the family and its head."""

import json

import numpy as np
import pytest
import torch
from trec import iter_trec

from tandem.config.settings import Execution
from tandem.config.training import ADAPTERS, Lora
from tandem.data.collection import Collection, join_contents
from tandem.data.runs import write_run
from tandem.errors import UserError
from tandem.models import published as encoders
from tandem.models import tokenisation
from tandem.models.acceleration import accelerate
from tandem.models.cross import CrossEncoder, run_reranker
from tandem.models.heads import HEAD_LAYERS, check_reranker
from tandem.models.hub import load_tokenizer
from tandem.models.tokens import Template
from tandem.retrieval import rerank
from tandem.stages.training import ModelParams
from tandem.store.artifact import open_artifact
from tandem.store.job import load, writing
from tandem.training.stage import start_cross

QUERIES = ["what does the lynx eat", "how does the owl behave"] * 2
PASSAGES = [
    "The lynx eats hares and roe deer.",
    "The owl turns its head far around, it is a night bird.",
]
PASSAGES += PASSAGES[::-1]
PAIRS = list(zip(QUERIES, PASSAGES, strict=True))
IDENTITY = {"activation_fn": torch.nn.Identity(), "show_progress_bar": False}


@pytest.fixture(scope="module")
def published(family_folder, tmp_path_factory):
    """`published(family, labels, **config)`: a folder as a published cross-encoder's, with random weights."""
    import transformers

    def make(family, labels=1, **config):
        start, folder = family_folder(family), tmp_path_factory.mktemp(f"published-{family}")
        settings = transformers.AutoConfig.from_pretrained(start, num_labels=labels, **config)
        with torch.random.fork_rng():
            torch.manual_seed(5)
            transformers.AutoModelForSequenceClassification.from_config(settings).save_pretrained(
                folder
            )
        load_tokenizer(start).save_pretrained(folder)
        return folder

    return make


@pytest.fixture
def reranker(make_job, tmp_path):
    """`reranker(folder)`: the artifact that the stages `encoder` and `reranker` make of a folder."""

    def make(folder):
        encoder = make_job(
            "encoder", tmp_path / "e-0123456789", {"source": "folder"}, {}, {"path": str(folder)}
        )
        encoders.run(encoder)
        job = make_job("reranker", tmp_path / "r-0123456789", {}, {"encoder": encoder.out})
        run_reranker(job)
        return open_artifact(job.out)

    return make


def ids_of(tokenizer):
    """Token ids of the pairs' queries and passages, without special tokens."""
    sides = (tokenizer(side, add_special_tokens=False)["input_ids"] for side in (QUERIES, PASSAGES))
    return [[np.array(row) for row in side] for side in sides]


def ours(folder):
    """Tandem's scores of the pairs by a saved cross-encoder."""
    tokenizer = load_tokenizer(folder)
    return CrossEncoder.load(folder).score(*ids_of(tokenizer), Template.of(tokenizer), "fp32", 512)


def theirs(folder):
    """sentence-transformers' scores without an activation."""
    from sentence_transformers import CrossEncoder as Theirs

    return Theirs(str(folder), device="cpu", local_files_only=True).predict(PAIRS, **IDENTITY)


def logits(folder):
    """transformers' logits, shape (pairs, labels)."""
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.inference_mode():
        return model(
            **load_tokenizer(folder)(QUERIES, PASSAGES, padding=True, return_tensors="pt")
        ).logits.numpy()


@pytest.mark.parametrize("family", HEAD_LAYERS)
def test_a_published_cross_encoder_scores_as_it_was_published(family, published, reranker):
    folder = published(family)
    artifact = reranker(folder)
    expected = theirs(folder)
    assert np.ptp(expected) > 1e-2
    saved = artifact.folder / "cross"
    for scores in (logits(folder)[:, 0], ours(saved), theirs(saved), logits(saved)[:, 0]):
        # fp32, summed in another order where the batch is another
        assert np.allclose(scores, expected, atol=1e-4)
    assert json.loads(artifact.path("model.json").read_text())["parts"] == ["cross"]


def test_modernbert_may_read_the_mean(published, reranker):
    first, mean = published("modernbert"), published("modernbert", classifier_pooling="mean")
    assert not np.allclose(theirs(first), theirs(mean), atol=1e-3)
    assert np.allclose(ours(reranker(mean).folder / "cross"), theirs(mean), atol=1e-4)


def test_of_two_labels_the_score_is_their_difference(published, reranker):
    names = {
        "id2label": {0: "relevant", 1: "irrelevant"},
        "label2id": {"relevant": 0, "irrelevant": 1},
    }
    for config, relevant in (({}, 1), (names, 0)):
        folder = published("bert", 2, **config)
        both = theirs(folder)
        scores = ours(reranker(folder).folder / "cross")
        assert np.allclose(scores, both[:, relevant] - both[:, 1 - relevant], atol=1e-4)
        softmax = torch.tensor(both).softmax(1)[:, relevant]
        # what denoising reads
        assert np.allclose(torch.tensor(scores).sigmoid(), softmax, atol=1e-4)


def edited(folder, file="config.json", **keys):
    path = folder / file
    content = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(content | keys))
    return folder


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("name", ["modules.linear.Identity", "modules.activation.Sigmoid"])
def test_a_saved_re_ranker_keeps_the_activation_of_its_predictions(
    name, again, published, reranker, tmp_path
):
    """In its `config.json`, or where sentence-transformers 6 writes it when it saves the model `again`."""
    from sentence_transformers import CrossEncoder as Theirs

    folder = edited(published("bert"), sentence_transformers={"activation_fn": f"torch.nn.{name}"})
    if again:
        Theirs(str(folder), device="cpu", local_files_only=True).save(str(tmp_path / "again"))
        folder = tmp_path / "again"
        assert name in (folder / "config_sentence_transformers.json").read_text()
    saved = reranker(folder).folder / "cross"
    before, after = (
        Theirs(str(place), device="cpu", local_files_only=True).predict(
            PAIRS, show_progress_bar=False
        )
        for place in (folder, saved)
    )
    assert np.allclose(before, after, atol=1e-4)
    assert np.allclose(ours(saved), before, atol=1e-4) == name.endswith("Identity")
    assert np.allclose(ours(saved), theirs(folder), atol=1e-4)


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (
            {"architectures": ["BertModel"]},
            "config.json: architectures is BertModel; allowed: …ForSequenceClassification",
        ),
        (
            {"model_type": "gpt2"},
            "config.json: model_type is gpt2; allowed: albert, bert, camembert",
        ),
        (
            {"model_type": "jina", "auto_map": {}},
            "model_type is jina; it needs code of its own, which is never run",
        ),
        (
            {"id2label": ["yes", "no"]},
            'config.json: id2label is ["yes", "no"]; a JSON object is needed',
        ),
        (
            {"id2label": {"relevant": 1}},
            "config.json: id2label has the key relevant; a label's number is needed",
        ),
        (
            {"id2label": {"0": "a", "1": "b", "2": "c"}},
            "config.json: has 3 labels; allowed: 1, or 2",
        ),
        (
            {"id2label": {"0": "cat", "1": "dog"}},
            "id2label names cat and dog; one must be: label_1, relevant",
        ),
        (
            {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Tanh"}},
            "the activation of scores is torch.nn.modules.activation.Tanh; allowed: Sigmoid, Identity",
        ),
    ],
)
def test_what_is_not_computed_here_is_refused_in_one_line(keys, line, published):
    with pytest.raises(UserError) as error:
        check_reranker(edited(published("bert"), **keys))
    assert line in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("file", "keys", "line"),
    [
        (
            "config_sentence_transformers.json",
            {"activation_fn": "torch.nn.modules.activation.Tanh"},
            "the activation of scores is torch.nn.modules.activation.Tanh; allowed: Sigmoid, Identity",
        ),
        (
            "sentence_bert_config.json",
            {"do_lower_case": True},
            "describes do_lower_case, which is not computed here",
        ),
    ],
)
def test_nor_is_what_files_beside_it_describe(file, keys, line, published):
    folder = edited(published("bert"), file, **keys)
    (folder / "modules.json").write_text("[]")
    with pytest.raises(UserError, match=line):
        check_reranker(folder)


def test_a_folder_without_a_head_a_tokenizer_or_safetensors_is_refused(
    published, reranker, family_folder, tmp_path
):
    folder = published("bert")
    weights = folder / "model.safetensors"
    (folder / "config_sentence_transformers.json").write_text('{"default_prompt_name": "query"}')
    with pytest.raises(UserError, match="default_prompt_name is query; re-rankers with a prompt"):
        check_reranker(folder)
    (folder / "config_sentence_transformers.json").unlink()
    weights.write_bytes((family_folder("bert") / "model.safetensors").read_bytes())
    with pytest.raises(
        UserError, match="holds no classifier.bias: a re-ranker needs its whole head"
    ):
        reranker(folder)
    weights.rename(folder / "pytorch_model.bin")
    with pytest.raises(
        UserError, match="model.safetensors is missing .*only safetensors are loaded"
    ):
        reranker(folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UserError, match="tokenizer.json is missing, and so are vocab.txt"):
        check_reranker(folder)
    with pytest.raises(UserError, match="config.json is missing"):
        check_reranker(tmp_path)


@pytest.mark.parametrize("family", HEAD_LAYERS)
@pytest.mark.parametrize("pooling", ["cls", "mean", "segments", "classifier"])
def test_a_trained_cross_encoder_loads_everywhere_or_is_refused(
    family, pooling, family_folder, tmp_path
):
    start, saved = family_folder(family), tmp_path / "cross"
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = CrossEncoder.start(start, pooling).eval()
    model.save(saved, load_tokenizer(start))
    scores = ours(saved)
    if pooling != "segments":
        assert np.allclose(theirs(saved), scores, atol=1e-4)
    tanh = HEAD_LAYERS[family].activation == "tanh"
    if pooling == "classifier" or (pooling == "cls" and tanh):
        assert np.ptp(scores) > 1e-3
        assert np.allclose(logits(saved)[:, 0], scores, atol=1e-4)
    else:
        with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
            logits(saved)


@pytest.mark.parametrize("family", ["bert", "xlm-roberta", "modernbert"])
def test_training_starts_from_the_published_scores_and_learns_its_head(
    family, published, reranker, tmp_path
):
    folder = published(family)
    artifact = reranker(folder)
    params = ModelParams.model_validate(
        {"objective": "cross", "train": {}, "pooling": "classifier"}
    )
    model, tokenizer = start_cross(artifact, params).eval(), load_tokenizer(folder)
    ids = ids_of(tokenizer)
    assert np.allclose(
        model(*ids, Template.of(tokenizer), "fp32").detach(), theirs(folder), atol=1e-4
    )
    load(ADAPTERS["lora"].add)(model, Lora(rank=2))
    model(*ids, Template.of(tokenizer), "fp32").square().sum().backward()
    learned = {
        name
        for name, p in model.named_parameters()
        if p.grad is not None and p.grad.abs().sum() > 0
    }
    assert {"head.dense.weight", "head.out.weight"} <= learned
    assert all("lora_" in name or name.startswith("head.") for name in learned)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter -= 0.01 * parameter.grad
    model.save(tmp_path / "cross", tokenizer)
    trained = ours(tmp_path / "cross")
    assert not np.allclose(trained, theirs(folder), atol=1e-3)
    assert np.allclose(theirs(tmp_path / "cross"), trained, atol=1e-4)
    assert np.allclose(model(*ids, Template.of(tokenizer), "fp32").detach(), trained, atol=1e-4)


@pytest.mark.parametrize("mode", ["fp32", "bf16"])
def test_frozen_for_inference_it_scores_the_same(mode, published):
    folder = published("bert")
    model, tokenizer = CrossEncoder.start(folder, "classifier"), load_tokenizer(folder)
    accelerate(model, Execution(), 512, mode, training=False)
    scores = model.score(*ids_of(tokenizer), Template.of(tokenizer), mode, 512)
    assert np.allclose(scores, theirs(folder), atol=1e-4 if mode == "fp32" else 0.1)


def test_a_published_re_ranker_reorders_a_run(published, reranker, make_job, dataset, tmp_path):
    """As `bm25+mini` is planned: token ids by its own tokenizer, its own head, the order of sentence-transformers."""
    from sentence_transformers import CrossEncoder as Theirs

    folder, collection = published("roberta"), Collection(dataset)
    model = reranker(folder)
    lengths = {"query_length": 20, "passage_length": 50}
    ids = make_job(
        "tokens",
        tmp_path / "t-0123456789",
        lengths,
        {"dataset": dataset, "encoder": tmp_path / "e-0123456789"},
    )
    tokenisation.run(ids)
    (query, text), docs = (
        next(iter(collection.queries("test").items())),
        collection.doc_ids().to_pylist()[:8],
    )
    pool = make_job("bm25", tmp_path / "b-0123456789", {"depth": 8}, {"dataset": dataset})
    with writing(pool) as draft:
        write_run(pool, draft, [(query, docs, np.arange(8, 0, -1.0))])
    inputs = {"dataset": dataset, "run": pool.out, "model": model, "tokens": ids.out}
    params = {"depth": 8, "precision": "fp32", "batch_tokens": 512}
    job = make_job("rerank", tmp_path / "x" / "rerank" / "mini-0123456789", params, inputs)
    rerank.run(job)
    passages = [join_contents(*collection.texts(docs)[doc]) for doc in docs]
    expected = Theirs(str(folder), device="cpu", local_files_only=True).predict(
        [(text, p) for p in passages], **IDENTITY
    )
    ((_, order, scores),) = iter_trec(job.out / "run.trec")
    assert order == [docs[i] for i in np.argsort(-expected)]
    assert np.allclose(scores, np.sort(expected)[::-1], atol=1e-4)


def test_a_head_of_another_shape_than_its_configuration_is_refused(published, reranker):
    folder = published("bert", labels=2, id2label={0: "no", 1: "yes"}, label2id={"no": 0, "yes": 1})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps(config | {"id2label": {"0": "yes"}, "label2id": {"yes": 0}})
    )
    with pytest.raises(
        UserError, match="hold classifier.bias of another shape and 1 more, by config.json"
    ):
        reranker(folder)
