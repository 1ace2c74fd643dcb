"""A published encoder is a row of `snakemake baseline`, of a collection that has a test split alone."""

import csv

import pytest
import torch
import yaml
from building import build_here
from tiny_project import PART, QUESTIONS, run_here, snakemake, tiny_config, write_beir


@pytest.fixture
def published(tmp_path, documents):
    """A causal language model of random weights as an encoder, saved by sentence-transformers."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling
    from transformers import Qwen2Tokenizer, Qwen3Config, Qwen3Model

    words = Qwen2Tokenizer().train_new_from_iterator(
        [f"{title} {text}" for _, title, text in documents], 400
    )
    size = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
    }
    config = Qwen3Config(vocab_size=len(words), intermediate_size=64, initializer_range=0.3, **size)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        Qwen3Model(config).save_pretrained(tmp_path / "plain")
    words.save_pretrained(tmp_path / "plain")
    transformer = Transformer(str(tmp_path / "plain"))
    transformer.tokenizer.padding_side = "left"
    modules = [transformer, Pooling(32, "lasttoken"), Normalize()]
    prompts = {"query": "Instruct: which animal?\nQuery: "}
    model = SentenceTransformer(modules=modules, prompts=prompts, device="cpu")
    model.save(str(tmp_path / "published"))
    return tmp_path / "published"


def test_a_published_model_is_a_row_as_sentence_transformers_computes_it(
    tmp_path, published, documents
):
    """A decoder, padded left, last-token pooling, a query prompt; a collection with a test split alone."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

    write_beir(tmp_path / "beir", documents, splits=("test",))
    config = tiny_config(tmp_path, "minilm") | {"systems": ["tiny"]}
    config |= {
        "encoders": {"tiny": {"source": "folder", "path": str(published)}},
        "bm25": {"engine": "bm25s"},
    }
    config["lengths"] = {"query": 64, "passage": 64}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    build_here(tmp_path, "baseline", "config.yaml")
    status, output = run_here(snakemake(tmp_path, ["baseline"]))
    assert status == 0, output
    with (tmp_path / "results/tables/baseline.csv").open() as file:
        values = {
            (row["system"], row["measure"]): float(row["value"]) for row in csv.DictReader(file)
        }
    subjects = [doc.removesuffix("-1") for doc, _, _ in documents if doc.endswith("-1")]
    evaluator = InformationRetrievalEvaluator(
        queries={name: QUESTIONS["test"].format(name) for name in subjects},
        corpus={doc: f"{title} {text}".strip() for doc, title, text in documents},
        relevant_docs={name: {f"{name}-{PART['test']}"} for name in subjects},
        ndcg_at_k=[10],
    )
    theirs = evaluator(SentenceTransformer(str(published), device="cpu"))["cosine_ndcg@10"]
    assert 0.01 < theirs < 0.95
    assert values["BM25", "nDCG@10"] > 0
    assert values["tiny", "nDCG@10"] / 100 == pytest.approx(theirs, abs=0.002)
