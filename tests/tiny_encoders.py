"""Sizes and configurations of tiny encoders, of every family that is tested."""

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
_DECODERS = ("qwen3", "qwen3, bidirectional", "llama", "mistral", "gemma3_text")
# Families of encoders: neither T5, half of which is a decoder, nor decoders.
ENCODERS = tuple(family for family in FAMILIES if family not in ("t5", *_DECODERS))
