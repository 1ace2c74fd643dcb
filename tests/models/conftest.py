"""Tiny encoders of the families that Hugging Face has, each with a tokenizer of its own kind."""

import pytest

SIZE = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
SIZE |= {"max_position_embeddings": 96, "initializer_range": 0.3}
DECODER = {"num_key_value_heads": 2, "head_dim": 8}
# Family: configuration, tokenizer, and what the configuration says beside the sizes.
FAMILIES = {
    "bert": ("BertConfig", "BertTokenizer", {}),
    "roberta": ("RobertaConfig", "RobertaTokenizer", {"type_vocab_size": 1}),
    "xlm-roberta": ("XLMRobertaConfig", "XLMRobertaTokenizer", {"type_vocab_size": 1}),
    "camembert": ("CamembertConfig", "CamembertTokenizer", {"type_vocab_size": 1}),
    "ernie": (
        "ErnieConfig",
        "BertTokenizer",
        {"use_task_id": True, "task_type_vocab_size": 3, "type_vocab_size": 4},
    ),
    "distilbert": ("DistilBertConfig", "DistilBertTokenizer", {}),
    "electra": ("ElectraConfig", "BertTokenizer", {"embedding_size": 16}),
    "albert": (
        "AlbertConfig",
        "AlbertTokenizer",
        {"embedding_size": 16, "hidden_dropout_prob": 0.1},
    ),
    "mpnet": ("MPNetConfig", "MPNetTokenizer", {}),
    "deberta-v2": (
        "DebertaV2Config",
        "DebertaV2Tokenizer",
        {
            "relative_attention": True,
            "position_buckets": 8,
            "pos_att_type": ["p2c", "c2p"],
            "type_vocab_size": 0,
        },
    ),
    "modernbert": (
        "ModernBertConfig",
        None,
        {"global_attn_every_n_layers": 3, "local_attention": 8, "attention_dropout": 0.1},
    ),
    "nomic_bert": ("NomicBertConfig", "BertTokenizer", {"attention_probs_dropout_prob": 0.1}),
    "gte": ("GteConfig", "XLMRobertaTokenizer", {}),
    "t5": (
        "T5Config",
        "T5Tokenizer",
        {
            "d_model": 32,
            "d_kv": 8,
            "d_ff": 64,
            "num_layers": 3,
            "num_heads": 4,
            "decoder_start_token_id": 0,
        },
    ),
    "qwen3": ("Qwen3Config", "Qwen2Tokenizer", DECODER),
    "qwen3, bidirectional": ("Qwen3Config", "Qwen2Tokenizer", DECODER | {"is_causal": False}),
    "llama": ("LlamaConfig", "LlamaTokenizer", DECODER),
    "mistral": ("MistralConfig", "LlamaTokenizer", DECODER | {"sliding_window": 8}),
    "gemma3_text": (
        "Gemma3TextConfig",
        "GemmaTokenizer",
        DECODER
        | {"use_bidirectional_attention": True, "sliding_window": 8, "query_pre_attn_scalar": 8},
    ),
}


@pytest.fixture(scope="session")
def family_folder(tmp_path_factory, documents):
    """`family_folder(family)`: a folder with a tiny encoder of random weights and a tokenizer of the tiny corpus."""
    import torch
    import transformers

    folders = {}

    def tokenizer_of(name):
        texts = [f"{title} {text}" for _, title, text in documents] + ["what does the lynx eat"]
        trained = getattr(transformers, name or "DistilBertTokenizer")().train_new_from_iterator(
            texts, 400
        )
        if name:
            return trained
        special = {
            "cls_token": "[CLS]",
            "sep_token": "[SEP]",
            "pad_token": "[PAD]",
            "unk_token": "[UNK]",
        }
        names = ["input_ids", "attention_mask"]
        return transformers.PreTrainedTokenizerFast(
            tokenizer_object=trained.backend_tokenizer, model_input_names=names, **special
        )

    def make(family):
        if family in folders:
            return folders[family]
        config, tokenizer, options = FAMILIES[family]
        folder, words = tmp_path_factory.mktemp(family), tokenizer_of(tokenizer)
        ids = {
            f"{name}_token_id": getattr(words, f"{name}_token_id")
            for name in ("pad", "bos", "eos", "cls", "sep")
        }
        made_config = getattr(transformers, config)(vocab_size=len(words), **SIZE, **ids, **options)
        with torch.random.fork_rng():
            torch.manual_seed(11)
            transformers.AutoModel.from_config(made_config).save_pretrained(folder)
        words.save_pretrained(folder)
        folders[family] = folder
        return folder

    return make
