"""What the tests of language models share: tiny models of random weights, and the stage over two queries."""

import numpy as np
import pytest
from llm_server import serving

from tandem.data.collection import Collection
from tandem.data.runs import iter_run, write_run
from tandem.retrieval.llm.rerank import run
from tandem.store.artifact import open_artifact
from tandem.store.job import writing

SIZE = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
CHAT = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}<|im_start|>"


@pytest.fixture(scope="session")
def language_model(tmp_path_factory, documents):
    """`language_model(family)`: the folder of a tiny `qwen3`, `llama` or `t5`; a word is a token."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    made = {}

    def tokenizer():
        trained = Tokenizer(models.WordLevel(unk_token="[UNK]"))
        trained.pre_tokenizer = pre_tokenizers.Whitespace()
        texts = [f"{title} {text}" for _, title, text in documents] + [
            "yes no true false A B [ 1 2 3 4 5 ] > Query passage"
        ]
        special = ["[UNK]", "[EOS]", "<|im_start|>", "<|im_end|>"]
        trained.train_from_iterator(texts, trainers.WordLevelTrainer(special_tokens=special))
        fast = transformers.PreTrainedTokenizerFast(tokenizer_object=trained, unk_token="[UNK]", eos_token="[EOS]")
        fast.chat_template = CHAT
        return fast

    def make(family, **more):
        key = (family, *more.items())
        if key not in made:
            folder, words = tmp_path_factory.mktemp(family), tokenizer()
            common = {"vocab_size": len(words), "eos_token_id": words.eos_token_id, "pad_token_id": words.eos_token_id}
            if family == "t5":
                size = {"d_model": 32, "d_ff": 64, "d_kv": 8, "num_layers": 2, "num_heads": 4}
                config = transformers.T5Config(**common, **size, decoder_start_token_id=1, initializer_factor=5.0)
                kind = transformers.AutoModelForSeq2SeqLM
            else:
                options = {"initializer_range": 0.5, "max_position_embeddings": 512, "num_key_value_heads": 2} | more
                config = {"qwen3": transformers.Qwen3Config, "llama": transformers.LlamaConfig}[family](
                    **common, **SIZE, **options
                )
                kind = transformers.AutoModelForCausalLM
            with torch.random.fork_rng():
                torch.manual_seed(2)
                kind.from_config(config).save_pretrained(folder)
            words.save_pretrained(folder)
            made[key] = folder
        return made[key]

    return make


@pytest.fixture
def server():
    """A server of the test; see `llm_server.serving`."""
    with serving() as httpd:
        yield httpd


@pytest.fixture
def questions(dataset):
    """Two test queries with their texts, and the eight documents that the run has for each."""
    collection = Collection(dataset)
    return list(collection.queries("test").items())[:2], collection.doc_ids().to_pylist()[:8]


@pytest.fixture
def rerank(make_job, dataset, questions, tmp_path):
    """`rerank(params, endpoint)`: the stage's artifact, and query → (documents, scores) of its run."""
    queries, docs = questions
    pool = make_job("bm25", tmp_path / "tiny" / "bm25" / "bm25-0123456789", {"depth": 8}, {"dataset": dataset})
    with writing(pool) as draft:
        write_run(draft.path("run.trec"), [(query, docs, np.arange(8, 0, -1.0)) for query, _ in queries], pool.key)

    def made(params, endpoint=None, name="llm"):
        how = {"endpoint": endpoint} if endpoint else {}
        inputs = {"dataset": dataset, "run": pool.out}
        out = tmp_path / "tiny" / "rerank_llm" / f"{name}-0123456789"
        job = make_job("rerank_llm", out, {"depth": 6, "precision": "fp32", **params}, inputs, how)
        run(job)
        return open_artifact(out), {query: (found, scores) for query, found, scores in iter_run(out / "run.trec")}

    return made
