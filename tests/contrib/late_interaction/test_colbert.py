"""Checkpoints of ColBERT in the layouts of Stanford's code and of PyLate: one score, by three ways."""

import json
import string

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sentence_transformers import MultiVectorEncoder
from torch import nn
from transformers import BertConfig, BertModel, BertTokenizer

from tandem.contrib.late_interaction.token_vectors import TokenVectors
from tandem.errors import UserError
from tandem.models.described import describe_towers
from tandem.models.folders import find_longest_input
from tandem.models.hub import load_tokenizer
from tandem.models.published import run
from tandem.models.tokens import Template

QUERIES = ["what do otters eat?", "where do herons nest"]
PASSAGES = ["Otters eat crabs, fish.", "Herons nest in trees.", "Moles dig."]
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
METADATA = {
    **{
        "query_token_id": "[unused0]",
        "doc_token_id": "[unused1]",
        "query_token": "[Q]",
        "doc_token": "[D]",
    },
    **{
        "dim": 8,
        "doc_maxlen": 40,
        "mask_punctuation": True,
        "query_maxlen": 12,
        "attend_to_mask_tokens": False,
    },
    **{"similarity": "cosine", "checkpoint": "bert-base-uncased", "nway": 64},
}
LIBRARY = {
    **{
        "__version__": {"pytorch": "2.6"},
        "prompts": {},
        "default_prompt_name": None,
        "similarity_fn_name": "MaxSim",
    },
    **{
        "query_prefix": "[Q] ",
        "document_prefix": "[D] ",
        "query_length": 12,
        "document_length": 40,
    },
    **{
        "attend_to_expansion_tokens": False,
        "skiplist_words": list(string.punctuation),
        "do_query_expansion": True,
    },
}
DENSE = {
    "in_features": 32,
    "out_features": 8,
    "bias": False,
    "activation_function": "torch.nn.modules.linear.Identity",
}


class Checkpoint:
    """A folder with a random model; `markers` are ids of queries' and passages', `weight` is its layer."""

    def __init__(self, folder, vocabulary, more):
        folder.mkdir()
        self.folder = folder
        self.tokenizer = BertTokenizer(
            vocab={piece: at for at, piece in enumerate([*vocabulary, *more])}
        )
        rng = torch.Generator().manual_seed(4)
        self.weight = torch.randn(8, 32, generator=rng)
        with torch.random.fork_rng():
            torch.manual_seed(4)
            size = len(self.tokenizer) + 2 * (not more)
            self.model = BertModel(
                BertConfig(vocab_size=size, initializer_range=0.3, **SIZES)
            ).eval()

    def write(self, name, value):
        (self.folder / name).parent.mkdir(exist_ok=True)
        (self.folder / name).write_text(json.dumps(value))

    def scores(self, markers, filled=True, attend=False):
        """MaxSim of `QUERIES` and `PASSAGES`, by transformers' model and token ids alone."""
        pieces = self.tokenizer.convert_tokens_to_ids
        skipped = {pieces(symbol) for symbol in string.punctuation} - {self.tokenizer.unk_token_id}
        table = []
        for query in QUERIES:
            ids = self.ids(query, markers[0])
            added = (12 - len(ids)) * filled
            every = torch.tensor([[*ids, *[self.tokenizer.mask_token_id] * added]])
            attended = torch.tensor([[1] * len(ids) + [int(attend)] * added])
            vectors = self.vectors(every, attended)
            rows = []
            for passage in PASSAGES:
                ids = self.ids(passage, markers[1])
                own = self.vectors(torch.tensor([ids]), torch.ones(1, len(ids)))
                counted = [at for at, token in enumerate(ids) if token not in skipped]
                rows.append((vectors @ own[counted].T).amax(1).sum().item())
            table.append(rows)
        return torch.tensor(table)

    def ids(self, text, marker):
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return [
            self.tokenizer.cls_token_id,
            *([marker] if marker else []),
            *ids,
            self.tokenizer.sep_token_id,
        ]

    def vectors(self, ids, attended):
        with torch.no_grad():
            states = self.model(input_ids=ids, attention_mask=attended).last_hidden_state[0]
        return nn.functional.normalize(states @ self.weight.T, dim=-1)


@pytest.fixture
def vocabulary(encoder_folder):
    """The pieces of the tiny tokenizer, in order."""
    known = load_tokenizer(encoder_folder).get_vocab()
    return sorted(known, key=known.get)


@pytest.fixture
def stanford(vocabulary, tmp_path):
    """`stanford(**metadata)`: a checkpoint of Stanford's layout."""

    def make(**metadata):
        checkpoint = Checkpoint(tmp_path / "stanford", vocabulary, ["[unused0]", "[unused1]"])
        weights = {
            f"bert.{name}": value.contiguous()
            for name, value in checkpoint.model.state_dict().items()
        }
        save_file(
            weights | {"linear.weight": checkpoint.weight},
            checkpoint.folder / "model.safetensors",
            {"format": "pt"},
        )
        checkpoint.model.config.architectures = ["HF_ColBERT"]
        checkpoint.model.config.save_pretrained(checkpoint.folder)
        checkpoint.tokenizer.save_pretrained(checkpoint.folder)
        checkpoint.write(
            "artifact.metadata",
            {key: value for key, value in (METADATA | metadata).items() if value != "gone"},
        )
        return checkpoint

    return make


@pytest.fixture
def pylate(vocabulary, tmp_path):
    """`pylate(**library)`: a checkpoint as PyLate saves it."""

    def make(**library):
        checkpoint = Checkpoint(tmp_path / "pylate", vocabulary, [])
        checkpoint.tokenizer.add_tokens(["[Q] ", "[D] "])
        checkpoint.model.save_pretrained(checkpoint.folder)
        checkpoint.tokenizer.save_pretrained(checkpoint.folder)
        types = {
            "": "sentence_transformers.models.Transformer",
            "1_Dense": "pylate.models.Dense.Dense",
        }
        rows = enumerate(types.items())
        checkpoint.write(
            "modules.json",
            [{"idx": i, "name": str(i), "path": path, "type": kind} for i, (path, kind) in rows],
        )
        checkpoint.write(
            "sentence_bert_config.json", {"max_seq_length": 39, "do_lower_case": False}
        )
        checkpoint.write("1_Dense/config.json", DENSE)
        save_file(
            {"linear.weight": checkpoint.weight}, checkpoint.folder / "1_Dense/model.safetensors"
        )
        checkpoint.write("config_sentence_transformers.json", LIBRARY | library)
        return checkpoint

    return make


@pytest.fixture
def ours(make_job, tmp_path):
    """`ours(folder)`: the scores of a checkpoint that the stage `encoder` has taken in."""

    def scores(folder):
        job = make_job(
            "encoder", tmp_path / "e-0123456789", {"source": "folder"}, {}, {"path": str(folder)}
        )
        run(job)
        towers = describe_towers(folder)
        model, tokenizer = (
            TokenVectors.start(job.out / "hf", True, **towers).eval(),
            load_tokenizer(job.out / "hf"),
        )
        assert model.dimension == 8
        vectors = []
        for side, texts in (("query", QUERIES), ("passage", PASSAGES)):
            prompted = [towers.get("prompts", {}).get(side, "") + text for text in texts]
            ids = tokenizer(prompted, add_special_tokens=False)["input_ids"]
            with torch.no_grad():
                vectors.append(
                    model.encode(
                        side, [np.array(row) for row in ids], Template.of(tokenizer), "fp32"
                    )
                )
        return model.scores(*vectors)

    return scores


def theirs(folder):
    model = MultiVectorEncoder(str(folder), device="cpu")
    return model.similarity(model.encode_query(QUERIES), model.encode_document(PASSAGES))


CLOSE = {"rtol": 1e-5, "atol": 1e-4}


@pytest.mark.parametrize(
    "metadata", [{}, {"mask_punctuation": True, "attend_to_mask_tokens": True}]
)
def test_stanford_s_scores(stanford, ours, metadata):
    checkpoint = stanford(**metadata)
    markers = checkpoint.tokenizer.convert_tokens_to_ids(["[unused0]", "[unused1]"])
    expected = checkpoint.scores(markers, attend=metadata.get("attend_to_mask_tokens", False))
    torch.testing.assert_close(ours(checkpoint.folder), expected, **CLOSE)
    torch.testing.assert_close(theirs(checkpoint.folder), expected, **CLOSE)
    assert find_longest_input(checkpoint.folder) == 40


@pytest.mark.parametrize(
    "library",
    [
        {},
        {"attend_to_expansion_tokens": True, "model_type": "ColBERT", "skiplist_words": None},
        {"do_query_expansion": False},
        {"query_prefix": "", "document_prefix": ""},
    ],
)
def test_pylate_s_scores(pylate, ours, library):
    checkpoint = pylate(**library)
    markers = (
        checkpoint.tokenizer.convert_tokens_to_ids(["[Q] ", "[D] "])
        if library.get("query_prefix") is None
        else [0, 0]
    )
    how = {
        "filled": library.get("do_query_expansion", True),
        "attend": library.get("attend_to_expansion_tokens", False),
    }
    expected = checkpoint.scores(markers, **how)
    torch.testing.assert_close(ours(checkpoint.folder), expected, **CLOSE)
    torch.testing.assert_close(theirs(checkpoint.folder), expected, **CLOSE)
    assert find_longest_input(checkpoint.folder) == 40


@pytest.mark.parametrize(
    ("metadata", "line"),
    [
        (
            {"similarity": "l2"},
            "artifact.metadata: describes the similarity l2, which is not computed here",
        ),
        ({"interaction": "flipr"}, "artifact.metadata: describes the interaction flipr"),
        (
            {"query_maxlen": "gone", "doc_token_id": "gone"},
            "does not say doc_token_id, query_maxlen; add what",
        ),
        ({"dim": 16}, "linear.weight has 8 rows, but the metadata say dim 16"),
        ({"query_token_id": "[Q]"}, r"its marker '\[Q\]' is not a token of its tokenizer; copy"),
    ],
)
def test_what_stanford_s_files_leave_open_is_refused(stanford, ours, metadata, line):
    with pytest.raises(UserError, match=line):
        ours(stanford(**metadata).folder)


@pytest.mark.parametrize(
    ("library", "line"),
    [
        ({"similarity_fn_name": "XTR"}, "describes the similarity XTR"),
        (
            {"skiplist_words": ["the"]},
            "describes tokens that are left out besides passages' punctuation",
        ),
        ({"query_length": None}, "does not say query_length; add what the model was trained with"),
        (
            {"document_prefix": "passage: "},
            "its marker 'passage: ' is not a token of its tokenizer",
        ),
    ],
)
def test_what_pylate_s_files_leave_open_is_refused(pylate, ours, library, line):
    with pytest.raises(UserError, match=line):
        ours(pylate(**library).folder)
