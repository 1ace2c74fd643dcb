"""Published encoders as sentence-transformers saves them: what their files say is read, and vectors are the same."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from tandem.config.settings import Execution
from tandem.config.training import ADAPTERS, Lora
from tandem.data.collection import Collection, join_contents
from tandem.errors import UserError
from tandem.models import encoding
from tandem.models.acceleration import accelerate
from tandem.models.cross import CrossEncoder
from tandem.models.described import describe_towers
from tandem.models.dual import DualEncoder, dot_scores
from tandem.models.hub import load_encoder, load_tokenizer
from tandem.models.published import run
from tandem.models.tokenisation import run as run_tokens
from tandem.models.tokens import Template, Tokens
from tandem.retrieval.encode import run as encode
from tandem.store.artifact import open_artifact
from tandem.store.job import load, run_shard
from tandem.training.stage import run_untrained

PROMPTS = {"query": "Instruct: find the animal\nQuery: ", "document": "text: "}
TOWERS = {"pooling": "mean", "normalize": False, "temperature": 1.0}


@pytest.fixture
def publish(family_folder, tmp_path):
    """`publish(family, pooling, …)`: the folder of a model of random weights that sentence-transformers has saved."""

    def make(family, pooling, *behind, padding="right", **options):
        transformer = Transformer(str(family_folder(family)), model_kwargs={"dtype": torch.float32})
        transformer.tokenizer.padding_side = padding
        if transformer.tokenizer.pad_token is None:
            transformer.tokenizer.pad_token = transformer.tokenizer.eos_token
        model = SentenceTransformer(
            modules=[transformer, Pooling(32, pooling), *behind], device="cpu", **options
        )
        model.save(str(tmp_path / "published"))
        return tmp_path / "published"

    return make


@pytest.fixture
def taken_over(make_job, dataset, tmp_path):
    """`taken_over(folder, **more)`: a published folder's dual encoder and token ids, by the stages themselves."""

    def make(folder, **more):
        options = {"path": str(folder), "vectors": describe_towers(folder)}
        encoder = make_job(
            "encoder", tmp_path / "encoder/e-0123456789", {"source": "folder"}, {}, options
        )
        run(encoder)
        inputs, vectors = {"encoder": encoder.out}, TOWERS | describe_towers(folder) | more
        lengths = {"query_length": 40, "passage_length": 24, "prompts": vectors.get("prompts", {})}
        tokens = make_job(
            "tokens",
            tmp_path / "tokens/t-0123456789",
            lengths,
            inputs | {"dataset": dataset.folder},
        )
        run_tokens(tokens)
        model = make_job("untrained", tmp_path / "untrained/m-0123456789", vectors, inputs)
        run_untrained(model)
        return open_artifact(model.out).folder / "dual", Tokens.open(open_artifact(tokens.out))

    return make


def assert_equal_vectors(ours, tokens, theirs, dataset, **options):
    """Vectors of all queries and passages, by a dual encoder here and by a model of sentence-transformers."""
    collection = Collection(dataset)
    passages = [
        join_contents(row["title"], row["text"])
        for batch in collection.batches()
        for row in batch.to_pylist()
    ]
    queries = [
        text for split in ("train", "dev", "test") for text in collection.queries(split).values()
    ]
    rows = {"query": tokens.queries, "passage": tokens.passages}
    for side, texts, length in (("query", queries, 40), ("passage", passages, 24)):
        theirs.max_seq_length = length + tokens.template.extra[0]
        encode = theirs.encode_query if side == "query" else theirs.encode_document
        with torch.inference_mode():
            vectors = ours.encode(
                side, [rows[side][i] for i in range(len(texts))], tokens.template, "fp32", 8
            ).numpy()
        expected = encode(texts, show_progress_bar=False, **options)
        assert vectors.shape == expected.shape
        assert np.ptp(vectors, axis=0).max() > 0.05  # texts have different vectors
        assert np.abs(vectors - expected).max() < 1e-5


@pytest.mark.parametrize(
    ("family", "pooling", "padding"),
    [
        ("bert", "max", "right"),
        ("modernbert", "weightedmean", "right"),
        ("t5", "mean", "right"),
        ("qwen3", "lasttoken", "left"),
        ("qwen3", "weightedmean", "right"),
        ("qwen3, bidirectional", "mean", "left"),
        ("llama", "mean", "left"),
        ("mistral", "lasttoken", "left"),
        ("gemma3_text", "max", "right"),
    ],
)
def test_vectors_equal_sentence_transformers(
    publish, taken_over, dataset, family, pooling, padding
):
    folder = publish(family, pooling, Normalize(), padding=padding, prompts=PROMPTS)
    assert describe_towers(folder) == {
        "pooling": pooling,
        "normalize": True,
        "temperature": 0.05,
        "prompts": {"query": PROMPTS["query"], "passage": PROMPTS["document"]},
    }
    dual, tokens = taken_over(folder)
    ours = DualEncoder.load(dual).eval()
    assert_equal_vectors(ours, tokens, SentenceTransformer(str(folder), device="cpu"), dataset)
    assert_equal_vectors(
        ours, tokens, SentenceTransformer(str(dual / "shared"), device="cpu"), dataset
    )


@pytest.mark.parametrize(
    ("family", "first", "config"),
    [
        ("mistral", True, {"tokenizer_class": "LlamaTokenizerFast"}),
        ("mistral", False, {"tokenizer_class": "LlamaTokenizer"}),
        (
            "qwen3",
            False,
            {"auto_map": {"AutoTokenizer": [None, "tokenization_qwen.Qwen2TokenizerFast"]}},
        ),
    ],
)
def test_the_last_token_that_a_tokenizer_promises_is_pooled(
    publish, taken_over, dataset, family, first, config
):
    """As E5 Mistral and GTE Qwen2 have it: `tokenizer.json` alone, which transformers 5 reads, does not put it."""
    folder = publish(family, "lasttoken", Normalize(), padding="left")
    tokenizer = load_tokenizer(folder)
    tokenizer.add_bos_token = first
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config | {"add_eos_token": True}))
    dual, tokens = taken_over(folder)
    before = (tokenizer.bos_token_id,) if first else ()
    assert tokens.template.single == (before, (tokenizer.eos_token_id,))
    promised = {"add_bos_token": first, "add_eos_token": True}
    ours = DualEncoder.load(dual).eval()
    theirs = SentenceTransformer(str(folder), device="cpu", processor_kwargs=promised)
    assert_equal_vectors(ours, tokens, theirs, dataset)
    assert_equal_vectors(
        ours, tokens, SentenceTransformer(str(dual / "shared"), device="cpu"), dataset
    )


def test_where_it_was_never_put_it_is_not_put_now(publish):
    folder = publish("qwen3", "lasttoken")
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"add_eos_token": True}))
    assert Template.of(load_tokenizer(folder)).single == ((), ())


@pytest.mark.parametrize("family", encoding.PACKED_FAMILIES)
def test_packed_they_are_the_same(publish, taken_over, dataset, family):
    folder = publish(family, "mean", Normalize(), prompts=PROMPTS)
    dual, tokens = taken_over(folder)
    ours = DualEncoder.load(dual).eval()
    accelerate(ours, Execution(attention="packed"), 128, "fp32", training=False)
    assert ours.packed == 128
    assert_equal_vectors(ours, tokens, SentenceTransformer(str(folder), device="cpu"), dataset)


@pytest.mark.parametrize(
    ("family", "pooling", "padding", "attention"),
    [
        ("bert", "mean", "right", "packed"),
        ("modernbert", "cls", "right", "padded"),
        ("t5", "mean", "right", "padded"),
        ("qwen3", "lasttoken", "left", "padded"),
    ],
)
@pytest.mark.parametrize("shards", [1, 2])
def test_the_stage_writes_them_in_one_piece_or_two(
    publish,
    taken_over,
    dataset,
    make_job,
    command,
    tmp_path,
    family,
    pooling,
    padding,
    attention,
    shards,
):
    folder = publish(family, pooling, Normalize(), padding=padding, prompts=PROMPTS)
    dual, tokens = taken_over(folder)
    inputs = {"dataset": dataset, "model": dual.parent, "tokens": tmp_path / "tokens/t-0123456789"}
    params = {
        "side": "passages",
        "block": 16,
        "batch_tokens": 256,
        "precision": "fp32",
        "dtype": "fp32",
    }
    out, execution = tmp_path / "de.passages-0123456789", {"attention": attention, "workers": 1}
    for number in range(shards) if shards > 1 else ():
        job = make_job(
            "embeddings", out, params, inputs, execution | {"shard": number, "shards": shards}
        )
        run_shard("embeddings-shard", command(job, f"shards/{number}.json"))
    assert len(list(out.glob("blocks/*.npy"))) == (4 if shards > 1 else 0)
    encode(make_job("embeddings", out, params, inputs, execution))
    vectors = np.concatenate([np.load(path) for path in sorted(out.glob("blocks/*.npy"))])
    theirs = SentenceTransformer(str(folder), device="cpu")
    theirs.max_seq_length = 24 + tokens.template.extra[0]
    rows = [row for batch in Collection(dataset).batches() for row in batch.to_pylist()]
    expected = theirs.encode_document(
        [join_contents(row["title"], row["text"]) for row in rows], show_progress_bar=False
    )
    assert vectors.shape == expected.shape
    assert np.abs(vectors - expected).max() < 1e-5


def test_linear_layers_and_fewer_dimensions(publish, taken_over, dataset):
    """As EmbeddingGemma: mean pooling, two linear layers, length 1; Matryoshka cuts and scales again."""
    layers = Dense(32, 48, activation_function=torch.nn.Identity()), Dense(48, 32)
    folder = publish("gemma3_text", "mean", *layers, Normalize(), prompts=PROMPTS)
    assert describe_towers(folder)["dense"] == ["2_Dense", "3_Dense"]
    dual, tokens = taken_over(folder, dim=12)
    ours = DualEncoder.load(dual).eval()
    assert (ours.full_dimension, ours.dimension) == (32, 12)
    published, saved = (
        SentenceTransformer(str(place), device="cpu") for place in (folder, dual / "shared")
    )
    assert_equal_vectors(
        ours, tokens, published, dataset, truncate_dim=12, normalize_embeddings=True
    )
    assert_equal_vectors(ours, tokens, saved, dataset)
    assert describe_towers(dual / "shared")["dense"] == ["2_Dense", "3_Dense", "4_Dense"]


def test_a_linear_layers_folder_may_have_another_name(publish, taken_over, dataset):
    """As in models with a layer for each size of vectors, of which modules.json names one."""
    folder = publish("bert", "mean", Dense(32, 48, activation_function=torch.nn.Identity()))
    (folder / "2_Dense").rename(folder / "2_Dense_48")
    listed = folder / "modules.json"
    listed.write_text(listed.read_text().replace('"2_Dense"', '"2_Dense_48"'))
    dual, tokens = taken_over(folder)
    published = SentenceTransformer(str(folder), device="cpu")
    assert_equal_vectors(
        DualEncoder.load(dual).eval(), tokens, published, dataset, normalize_embeddings=True
    )


def test_vectors_that_are_cut_behind_length_1_are_refused_where_scores_are_dot_products(publish):
    """sentence-transformers then leaves them shorter than 1, which counts; by cosines it does not."""
    folder = publish("bert", "mean", Normalize(), similarity_fn_name="dot", truncate_dim=12)
    cut = SentenceTransformer(str(folder), device="cpu").encode(
        ["the owl"], show_progress_bar=False
    )
    assert np.linalg.norm(cut) < 0.99
    with pytest.raises(
        UserError,
        match="config_sentence_transformers.json: describes truncate_dim behind Normalize",
    ):
        describe_towers(folder)
    path = folder / "config_sentence_transformers.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"similarity_fn_name": "cosine"}))
    assert describe_towers(folder)["dim"] == 12


@pytest.mark.parametrize(
    ("layer", "keys", "message"),
    [
        (
            "2_Dense",
            {"in_features": 30},
            "2_Dense/config.json: in_features is 30, expected 32, which the encoder",
        ),
        (
            "2_Dense",
            {"out_features": 40},
            "3_Dense/config.json: in_features is 48, expected 40, which 2_Dense makes",
        ),
        (
            "3_Dense",
            {"in_features": None},
            "3_Dense/config.json: in_features is None; expected a whole number",
        ),
    ],
)
def test_linear_layers_that_do_not_fit_are_refused(publish, layer, keys, message):
    """While planning, or, where an entry names them, when the encoder is loaded."""
    path = publish("bert", "mean", Dense(32, 48), Dense(48, 32)) / layer / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))
    folder = path.parents[1]
    with pytest.raises(UserError, match=message):
        describe_towers(folder)
    with pytest.raises(UserError, match=message):
        DualEncoder.start(folder, True, **TOWERS, dense=["2_Dense", "3_Dense"])


def test_more_dimensions_than_there_are_are_refused(publish):
    folder = publish("bert", "mean")
    with pytest.raises(UserError, match="dim is 33, but its vectors have 32 numbers"):
        DualEncoder.start(folder, True, **TOWERS, dim=33)


def test_weights_of_an_encoder_with_code_of_its_own_are_refused(publish):
    """As Jina's second generation has them, which calls itself a BERT."""
    folder = publish("bert", "mean")
    path, weights = folder / "config.json", folder / "model.safetensors"
    path.write_text(
        json.dumps(
            json.loads(path.read_text())
            | {"auto_map": {"AutoModel": "modeling_bert.JinaBertModel"}}
        )
    )
    kept = {
        name: tensor
        for name, tensor in load_file(weights).items()
        if "position_embeddings" not in name
    }
    save_file(kept, weights, metadata={"format": "pt"})
    with pytest.raises(
        UserError,
        match="lack embeddings.position_embeddings.weight, .* they are of code of its own",
    ):
        load_encoder(folder)


@pytest.mark.parametrize("causal", [None, False, True])
def test_a_decoder_with_code_of_its_own_says_whether_it_is_causal(
    publish, taken_over, dataset, causal
):
    """As Stella and GTE Qwen have it: their code reads texts in both directions, transformers' own in one."""
    folder = publish("qwen3", "mean", Normalize())
    path = folder / "config.json"
    said = {} if causal is None else {"is_causal": causal}
    code = {"AutoModel": "modeling_qwen.Qwen3Model"}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"auto_map": code} | said))
    if causal is None:
        with pytest.raises(
            UserError, match="needs code of its own .modeling_qwen.Qwen3Model., .*is_causal: false"
        ):
            taken_over(folder)
        return
    dual, tokens = taken_over(folder)
    theirs = SentenceTransformer(str(folder), device="cpu")
    assert_equal_vectors(DualEncoder.load(dual).eval(), tokens, theirs, dataset)


@pytest.mark.parametrize("family", ["qwen3", "qwen3, bidirectional", "llama", "mistral"])
def test_cls_without_a_token_of_its_own_is_refused(family, family_folder, make_job, tmp_path):
    folder = family_folder(family)
    with pytest.raises(UserError, match="pooling is cls, but"):
        DualEncoder.start(folder, True, **TOWERS | {"pooling": "cls"})
    with pytest.raises(UserError, match="puts no token between two texts|pooling is cls"):
        CrossEncoder.start(folder, "cls")
    options = {"path": str(folder), "vectors": {"pooling": "cls"}}
    job = make_job("encoder", tmp_path / "e-0123456789", {"source": "folder"}, {}, options)
    with pytest.raises(UserError, match="pooling is cls"):
        run(job)


def test_a_prompt_that_leaves_no_room_is_refused(encoder, dataset, make_job, tmp_path):
    prompts = {"query": "what does the otter eat in the river when winter is close"}
    params = {"query_length": 8, "passage_length": 24, "prompts": prompts}
    job = make_job(
        "tokens", tmp_path / "t-0123456789", params, {"encoder": encoder, "dataset": dataset}
    )
    with pytest.raises(
        UserError, match=r"lengths.query is 8, but the prompt 'what .*' has \d+ tokens: raise it"
    ):
        run_tokens(job)


@pytest.mark.parametrize(
    ("file", "content", "refused"),
    [
        (
            "1_Pooling/config.json",
            {"pooling_mode": ["cls", "mean"]},
            "describes the pooling cls [+] mean",
        ),
        (
            "1_Pooling/config.json",
            {"pooling_mode": "mean_sqrt_len_tokens"},
            "the pooling mean_sqrt_len_tokens",
        ),
        (
            "1_Pooling/config.json",
            {"pooling_mode": "mean", "include_prompt": False},
            "without the prompt's tokens",
        ),
        (
            "config_sentence_transformers.json",
            {"similarity_fn_name": "euclidean"},
            "the similarity euclidean",
        ),
        (
            "config_sentence_transformers.json",
            {"prompts": {"sts": "same? "}, "default_prompt_name": "sts"},
            "has the prompt sts for all texts, and none for queries or passages; say prompts",
        ),
        (
            "sentence_bert_config.json",
            {"do_lower_case": True},
            "describes do_lower_case, which is not computed here",
        ),
        (
            "sentence_bert_config.json",
            {"modality_config": {"message": {}}},
            "texts in a chat's template",
        ),
        (
            "sentence_bert_config.json",
            {
                "modality_config": {
                    "text": {"method": "forward", "method_output_name": ["hidden_states", 1]}
                }
            },
            'texts read by {"method": "forward", "method_output_name": ."hidden_states", 1.}',
        ),
        (
            "sentence_bert_config.json",
            {"tokenizer_args": {"add_eos_token": True}},
            "add_eos_token in tokenizer_args",
        ),
        (
            "sentence_bert_config.json",
            {"config_kwargs": {"num_hidden_layers": 1}},
            "num_hidden_layers in config_kwargs",
        ),
        (
            "sentence_bert_config.json",
            {"processing_kwargs": {"text": {"add_special_tokens": False}}},
            "text in processing_kwargs",
        ),
    ],
)
def test_what_is_not_computed_here_is_refused(publish, file, content, refused):
    folder = publish("bert", "mean")
    (folder / file).write_text(json.dumps(content))
    with pytest.raises(UserError, match=refused):
        describe_towers(folder)


def test_options_that_change_no_vector_are_read(publish, taken_over, dataset):
    folder = publish("bert", "mean", Normalize())
    options = {
        "model_args": {"add_pooling_layer": False},
        "tokenizer_args": {"use_fast": True, "revision": None},
    }
    (folder / "sentence_bert_config.json").write_text(json.dumps(options))
    dual, tokens = taken_over(folder)
    theirs = SentenceTransformer(str(folder), device="cpu")
    assert_equal_vectors(DualEncoder.load(dual).eval(), tokens, theirs, dataset)


def test_prompts_by_whatever_name_files_have_them(publish):
    """Of passages, sentence-transformers' own where `document` is among them, else what the author means."""
    folder = publish("bert", "mean", similarity_fn_name="dot")
    path = folder / "config_sentence_transformers.json"
    assert describe_towers(folder) == {"pooling": "mean"}
    config = json.loads(path.read_text())
    for prompts, expected, theirs in (
        (
            {"query": "query: ", "document": "text: "},
            {"query": "query: ", "passage": "text: "},
            "text: ",
        ),
        (
            {"query": "query: ", "passage": "passage: "},
            {"query": "query: ", "passage": "passage: "},
            "",
        ),
        ({"query": "", "corpus": "text: "}, {"passage": "text: "}, ""),
        ({"document": "", "passage": "passage: ", "query": ""}, None, ""),
        ({"document": "", "query": ""}, None, ""),
    ):
        path.write_text(json.dumps(config | {"prompts": prompts, "default_prompt_name": "query"}))
        assert describe_towers(folder).get("prompts") == expected
        model = SentenceTransformer(str(folder), device="cpu")
        vectors = model.encode_document(["the owl"]), model.encode(["the owl"], prompt=theirs)
        assert np.array_equal(*vectors)


def test_a_query_in_its_prompt_reads_as_the_card_says(publish):
    """The template stands around prompt and text together, as the model's own tokenizer has it."""
    tokenizer = load_tokenizer(publish("qwen3", "lasttoken", prompts=PROMPTS))
    text = PROMPTS["query"] + "what does the owl eat"
    ids = np.array(tokenizer(text, add_special_tokens=False)["input_ids"])
    assert Template.of(tokenizer).single_inputs([ids]).to_tensors()["input_ids"].tolist() == [
        tokenizer(text)["input_ids"]
    ]


def test_a_step_of_a_decoder_with_lora_equals_peft_by_hand(family_folder):
    """In-batch negatives over the last tokens' states; every linear layer has an adapter."""
    from peft import LoraConfig, get_peft_model

    folder = family_folder("qwen3")
    tokenizer = load_tokenizer(folder)
    texts = {
        "query": ["what does the lynx eat", "how does the owl behave"],
        "passage": ["hares", "it turns its head"],
    }
    ours = DualEncoder.start(folder, True, **TOWERS | {"pooling": "lasttoken"})
    torch.manual_seed(3)
    load(ADAPTERS["lora"].add)(ours, Lora(rank=2, alpha=6))
    torch.manual_seed(3)
    lora = LoraConfig(r=2, lora_alpha=6, target_modules="all-linear")
    theirs = get_peft_model(load_encoder(folder), lora)

    def by_hand(side):
        tokenizer.padding_side, tokenizer.pad_token = (
            "left",
            tokenizer.pad_token or tokenizer.eos_token,
        )
        return theirs(
            **tokenizer(texts[side], padding=True, return_tensors="pt")
        ).last_hidden_state[:, -1]

    def here(side):
        ids = [
            np.array(row) for row in tokenizer(texts[side], add_special_tokens=False)["input_ids"]
        ]
        return ours.encode(side, ids, Template.of(tokenizer), "fp32", 8)

    results = []
    for model, vectors in ((ours, here), (theirs, by_hand)):
        model.train()
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
        for _ in range(2):  # B is zero before the first step
            loss = (
                -dot_scores(vectors("query"), vectors("passage"), 1.0)
                .log_softmax(1)
                .diagonal()
                .mean()
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        learned = [p.detach() for name, p in model.named_parameters() if ".lora_" in name]
        results.append((loss.item(), learned))
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-4)
    assert len(results[0][1]) == len(results[1][1]) == 2 * 3 * 7
    for mine, expected in zip(results[0][1], results[1][1], strict=True):
        assert torch.allclose(mine, expected, atol=1e-4)


@pytest.mark.parametrize(
    "weights", [{"linear.weight": torch.zeros(4, 32)}, {"weight": torch.zeros(8, 31)}, None]
)
def test_a_layer_whose_weights_do_not_fit_is_one_line(weights, publish):
    folder = publish("bert", "mean", Dense(32, 8))
    path = folder / "2_Dense/model.safetensors"
    if weights is None:
        path.write_bytes(b"version https://git-lfs.github.com/spec/v1")
    else:
        save_file(weights, path)
    with pytest.raises(UserError, match="2_Dense: its weights"):
        DualEncoder.start(folder, True, "mean", False, 1.0, dense=["2_Dense"])


@pytest.mark.parametrize(
    "keys",
    [
        {"use_residual": True},
        {"module_input_name": "token_embeddings"},
        {"module_output_name": "sparse"},
    ],
)
def test_a_layer_that_does_more_is_one_line(keys, publish):
    folder = publish("bert", "mean", Dense(32, 32))
    path = folder / "2_Dense/config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))
    with pytest.raises(
        UserError, match="2_Dense: is not a linear layer of a text's vector with an activation"
    ):
        DualEncoder.start(folder, True, "mean", False, 1.0, dense=["2_Dense"])
