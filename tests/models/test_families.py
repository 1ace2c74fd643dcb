"""Every family of encoders: it trains on both sides and gives the same numbers everywhere; what does not is refused."""

import json
import shutil

import numpy as np
import pytest
import torch
from tiny_encoders import ENCODERS

from tandem.errors import UserError
from tandem.models.cross import CrossEncoder
from tandem.models.dual import DualEncoder, dot_scores
from tandem.models.folders import BEHIND_PADDING, read_positions
from tandem.models.hub import check_length, load_encoder, load_tokenizer
from tandem.models.learning import set_dropout
from tandem.models.published import check_encoder, run
from tandem.models.tokens import Template
from tandem.store.artifact import open_artifact

TOWERS = {"shared": True, "pooling": "mean", "normalize": False, "temperature": 1.0}
QUERIES = ["what does the lynx eat", "how does the owl behave"]
PASSAGES = [
    "The lynx eats hares and roe deer.",
    "The owl turns its head far around, it is a night bird.",
]
# What stands around a pair, in words, and whether the model tells the two texts apart by segments.
PAIRS = {
    "bert": ("[CLS]|[SEP]|[SEP]", True),
    "roberta": ("<s>|</s> </s>|</s>", False),
    "xlm-roberta": ("<s>|</s> </s>|</s>", False),
    "camembert": ("<s>|</s> </s>|</s>", False),
    "ernie": ("[CLS]|[SEP]|[SEP]", True),
    "distilbert": ("[CLS]|[SEP]|[SEP]", False),
    "electra": ("[CLS]|[SEP]|[SEP]", True),
    "albert": ("[CLS]|[SEP]|[SEP]", False),
    "mpnet": ("<s>|</s> </s>|</s>", False),
    "deberta-v2": ("[CLS]|[SEP]|[SEP]", True),
    "modernbert": ("[CLS]|[SEP]|[SEP]", False),
    "nomic_bert": ("[CLS]|[SEP]|[SEP]", True),
    "gte": ("<s>|</s> </s>|</s>", False),
}


@pytest.fixture(scope="module", params=ENCODERS)
def family(request):
    return request.param


@pytest.fixture(scope="module")
def folder(family, family_folder):
    return family_folder(family)


@pytest.fixture(scope="module")
def tokenizer(folder):
    return load_tokenizer(folder)


@pytest.fixture(scope="module")
def ids(tokenizer):
    """Token ids of some texts, without special tokens."""
    return lambda texts: [
        np.array(row) for row in tokenizer(texts, add_special_tokens=False)["input_ids"]
    ]


def step(model, loss):
    """One step of plain gradient descent; returns the names of the parameters that have no gradient."""
    loss.backward()
    without = {name for name, p in model.named_parameters() if p.grad is None}
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter -= 0.01 * parameter.grad / (1 + parameter.grad.norm())
    return without


def test_the_template_is_the_tokenizers_own(family, tokenizer):
    template = Template.of(tokenizer)
    words = "|".join(" ".join(tokenizer.convert_ids_to_tokens(part)) for part in template.pair)
    assert (words, template.types == (0, 0, 0, 1, 1)) == PAIRS[family]
    assert template.types in (None, (0, 0, 0, 1, 1))
    assert template.pad == tokenizer.pad_token_id


def test_a_dual_encoder_trains_saves_and_gives_the_same_vectors_everywhere(
    family, folder, tokenizer, ids, tmp_path
):
    from sentence_transformers import SentenceTransformer

    template, model = Template.of(tokenizer), DualEncoder.start(folder, **TOWERS).train()
    before = model.towers["query"].get_input_embeddings().weight.detach().clone()
    vectors = [
        model.encode(side, ids(texts), template, "fp32", 8)
        for side, texts in (("query", QUERIES), ("passage", PASSAGES))
    ]
    loss = -dot_scores(*vectors, 10.0).log_softmax(1).diagonal().sum()
    assert step(model, loss) <= {"towers.query.embeddings.task_type_embeddings.weight"}
    assert not torch.equal(before, model.towers["query"].get_input_embeddings().weight)
    model.save(tmp_path / "dual", tokenizer)
    again, model = DualEncoder.load(tmp_path / "dual").eval(), model.eval()
    with torch.inference_mode():
        ours, loaded = (
            m.encode("passage", ids(PASSAGES), template, "fp32") for m in (model, again)
        )
    assert torch.equal(ours, loaded)
    theirs = SentenceTransformer(str(tmp_path / "dual/shared"), device="cpu", local_files_only=True)
    assert np.allclose(theirs.encode(PASSAGES, show_progress_bar=False), ours, atol=1e-5)


def test_a_cross_encoder_trains_saves_and_gives_the_same_scores_everywhere(
    family, folder, tokenizer, ids, tmp_path
):
    from sentence_transformers import CrossEncoder as Theirs

    torch.manual_seed(0)
    template, model = Template.of(tokenizer), CrossEncoder.start(folder, "cls").train()
    pairs = (ids(QUERIES + QUERIES), ids(PASSAGES + PASSAGES[::-1]))
    loss = -(model(*pairs, template, "fp32", 8).reshape(2, 2).log_softmax(0)[0].sum())
    assert step(model, loss) <= {"encoder.embeddings.task_type_embeddings.weight"}
    model.save(tmp_path / "cross", tokenizer)
    scores = model.score(*pairs, template, "fp32", 512)
    assert (
        CrossEncoder.load(tmp_path / "cross").score(*pairs, template, "fp32", 512).tobytes()
        == scores.tobytes()
    )
    assert np.ptp(scores) > 1e-3
    theirs = Theirs(str(tmp_path / "cross"), device="cpu", local_files_only=True)
    texts = list(zip(QUERIES + QUERIES, PASSAGES + PASSAGES[::-1], strict=True))
    expected = theirs.predict(texts, activation_fn=torch.nn.Identity(), show_progress_bar=False)
    assert np.allclose(scores, expected, atol=1e-4)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_dropout_is_what_was_set(folder, ids, tokenizer, attention):
    model, template = DualEncoder.start(folder, **TOWERS).train(), Template.of(tokenizer)
    model.towers["query"].set_attn_implementation(attention)

    def forward(seed):
        torch.manual_seed(seed)
        return model.encode("passage", ids(PASSAGES), template, "fp32")

    set_dropout(model, None)
    assert not torch.equal(forward(0), forward(1))
    set_dropout(model, 0.0)
    assert torch.equal(forward(0), forward(1))
    set_dropout(model, 0.3)
    assert not torch.equal(forward(0), forward(1))
    assert torch.equal(forward(0), forward(0))


def test_no_place_keeps_its_own_dropout(family, folder, ids, tokenizer, monkeypatch):
    model, seen = DualEncoder.start(folder, **TOWERS).train(), []
    model.towers["query"].set_attn_implementation("eager")
    plain = torch.nn.functional.dropout

    def dropout(values, p=0.5, training=True, inplace=False):
        seen.append(p)
        return plain(values, p, training, inplace)

    monkeypatch.setattr(torch.nn.functional, "dropout", dropout)
    set_dropout(model, 0.3)
    model.encode("passage", ids(PASSAGES), Template.of(tokenizer), "fp32")
    layers = 3
    assert set(seen) == {0.3}
    # after the embeddings; in each layer on attention's weights and after one or both of its halves
    assert len(seen) >= 1 + 2 * layers


def test_dropout_that_the_configuration_left_out_can_be_set(family_folder, tmp_path):
    folder = shutil.copytree(family_folder("modernbert"), tmp_path / "without")
    config = json.loads((folder / "config.json").read_text()) | {"attention_dropout": 0.0}
    (folder / "config.json").write_text(json.dumps(config))
    model = DualEncoder.start(folder, **TOWERS)
    assert isinstance(model.towers["query"].layers[0].attn.out_drop, torch.nn.Identity)
    set_dropout(model, 0.2)
    assert model.towers["query"].layers[0].attn.out_drop.p == 0.2


def test_the_first_layers_are_a_prefix(family, folder, ids, tokenizer, make_job, tmp_path):
    job = make_job(
        "encoder",
        tmp_path / "e-0123456789",
        {"source": "folder", "layers": 2},
        {},
        {"path": str(folder)},
    )
    run(job)
    short, whole = load_encoder(job.out / "hf").eval(), load_encoder(folder).eval()
    assert (short.config.num_hidden_layers, whole.config.num_hidden_layers) == (2, 3)
    inputs = Template.of(load_tokenizer(job.out / "hf")).single_inputs(ids(PASSAGES)).to_tensors()
    with torch.inference_mode():
        expected = whole(**inputs, output_hidden_states=True).hidden_states[2]
        if family == "modernbert":  # its last layer is followed by a norm
            expected = whole.final_norm(expected)
        states = short(**inputs).last_hidden_state
    assert torch.allclose(states, expected, atol=1e-6)


def test_more_layers_than_there_are_are_refused(family_folder, make_job, tmp_path):
    folder = family_folder("bert")
    params = {"source": "folder", "layers": 4}
    with pytest.raises(UserError, match="layers is 4, but .* has 3"):
        run(make_job("encoder", tmp_path / "e-0123456789", params, {}, {"path": str(folder)}))


def test_positions_that_start_after_the_padding_are_not_counted(family_folder):
    for family, room in (
        ("bert", 96),
        ("xlm-roberta", 94),
        ("camembert", 94),
        ("mpnet", 94),
        ("distilbert", 96),
    ):
        model = load_encoder(family_folder(family)).eval()
        with torch.inference_mode():
            model(input_ids=torch.full((1, room), 9))
        check_length(model, room, "texts")
        with torch.inference_mode(), pytest.raises((IndexError, RuntimeError)):
            model(input_ids=torch.full((1, room + 1), 9))
        with pytest.raises(
            UserError, match=rf"texts allows inputs of {room + 1} tokens; the model .* takes {room}"
        ):
            check_length(model, room + 1, "texts")


def test_planning_knows_the_positions_that_the_stages_allow(family, family_folder):
    folder = family_folder(family)
    limit = read_positions(json.loads((folder / "config.json").read_text()))
    model = load_encoder(folder)
    check_length(model, limit or 10**6, "texts")
    if limit:
        with pytest.raises(UserError, match=f"takes {limit}"):
            check_length(model, limit + 1, "texts")


@pytest.mark.parametrize("name", BEHIND_PADDING)
def test_so_it_does_for_all_relatives_of_roberta(name):
    import transformers

    sizes = {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 8,
    }
    more = {"entity_vocab_size": 9} if name == "luke" else {}
    config = transformers.AutoConfig.for_model(
        name, **sizes, **more, vocab_size=9, max_position_embeddings=20
    )
    limit = read_positions(config.to_dict())
    assert limit == 18
    model = transformers.AutoModel.from_config(config)
    check_length(model, 18, "texts")
    with pytest.raises(UserError, match="takes 18"):
        check_length(model, 19, "texts")


def test_what_is_no_encoder_is_refused_in_one_line(family_folder, make_job, tmp_path):
    import transformers

    words = load_tokenizer(family_folder("bert"))
    heads = {
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_layers": 1,
        "decoder_layers": 1,
    }
    folder = tmp_path / "bart"
    config = transformers.BartConfig(vocab_size=len(words), d_model=16, **heads)
    transformers.BartModel(config).save_pretrained(folder)
    words.save_pretrained(folder)
    job = make_job(
        "encoder", tmp_path / "e-0123456789", {"source": "folder"}, {}, {"path": str(folder)}
    )
    with pytest.raises(
        UserError, match="/bart: bart has a decoder; only encoders are taken"
    ) as refused:
        run(job)
    assert "\n" not in str(refused.value)
    assert not (job.out / "stage.json").exists()
    few = transformers.BertConfig(
        vocab_size=len(words) - 1, hidden_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    transformers.BertModel(few).save_pretrained(tmp_path / "few")
    words.save_pretrained(tmp_path / "few")
    with pytest.raises(
        UserError,
        match=f"needs vectors for {len(words)} ids, the model has {len(words) - 1}",
    ):
        check_encoder(tmp_path / "few", tmp_path / "few")


def test_an_encoder_that_reads_padding_or_more_than_texts_is_refused(family_folder, tmp_path):
    import transformers

    words = load_tokenizer(family_folder("bert"))
    size = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "intermediate_size": 64,
    }
    convolving = transformers.ConvBertConfig(
        vocab_size=len(words), embedding_size=32, initializer_range=0.3, **size
    )
    text, pictures = size | {"vocab_size": len(words)}, size | {"image_size": 8, "patch_size": 4}
    both = transformers.CLIPConfig(text_config=text, vision_config=pictures)
    with torch.random.fork_rng():
        torch.manual_seed(2)
        transformers.ConvBertModel(convolving).save_pretrained(tmp_path / "convbert")
        transformers.CLIPModel(both).save_pretrained(tmp_path / "clip")
    for name, line in {
        "convbert": "reads the padding behind a text",
        "clip": "is not an encoder of texts",
    }.items():
        words.save_pretrained(tmp_path / name)
        with pytest.raises(UserError, match=f"{name} {line}"):
            check_encoder(tmp_path / name, tmp_path / name)


def test_ernie_reads_every_text_as_task_0(family_folder):
    """The released ERNIE 2.0 adds a vector of the task; without a number given, it is that of task 0."""
    model = load_encoder(family_folder("ernie")).eval()
    inputs = {
        "input_ids": torch.arange(5, 12)[None],
        "attention_mask": torch.ones(1, 7, dtype=torch.int64),
    }
    with torch.inference_mode():
        plain, task_0, task_1 = (
            model(**inputs, **extra).last_hidden_state
            for extra in ({}, *({"task_type_ids": torch.full((1, 7), task)} for task in (0, 1)))
        )
    assert torch.equal(plain, task_0)
    assert not torch.allclose(plain, task_1, atol=1e-3)


def test_an_encoders_folder_says_what_was_kept(family_folder, make_job, tmp_path):
    params = {"source": "folder", "layers": 1}
    job = make_job(
        "encoder", tmp_path / "e-0123456789", params, {}, {"path": str(family_folder("modernbert"))}
    )
    run(job)
    config = json.loads(open_artifact(job.out).path("hf/config.json").read_text())
    assert config["num_hidden_layers"] == len(config["layer_types"]) == 1
