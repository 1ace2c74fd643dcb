"""Language models of random weights, small enough to be made on the spot: real classes, a word is a token."""

SIZE = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
CHAT = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}<|im_start|>"
SPECIAL = ["[UNK]", "[EOS]", "<|im_start|>", "<|im_end|>"]


def make_tokenizer(texts):
    """A tokenizer that knows the words of some texts, with a chat template."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    trained = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    trained.pre_tokenizer = pre_tokenizers.Whitespace()
    trained.train_from_iterator(texts, trainers.WordLevelTrainer(special_tokens=SPECIAL))
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=trained, unk_token="[UNK]", eos_token="[EOS]"
    )
    fast.chat_template = CHAT
    return fast


def make_language_model(folder, family, texts, **options):
    """A `qwen3`, `llama` or `t5` that knows the words of some texts, saved in a folder; `options` are of its config."""
    import torch
    import transformers

    words = make_tokenizer(texts)
    common = {
        "vocab_size": len(words),
        "eos_token_id": words.eos_token_id,
        "pad_token_id": words.eos_token_id,
    }
    if family == "t5":
        size = {"d_model": 32, "d_ff": 64, "d_kv": 8, "num_layers": 2, "num_heads": 4}
        config = transformers.T5Config(
            **common, **size, decoder_start_token_id=1, initializer_factor=5.0
        )
        kind = transformers.AutoModelForSeq2SeqLM
    else:
        options = {
            "initializer_range": 0.5,
            "max_position_embeddings": 512,
            "num_key_value_heads": 2,
        } | options
        config = {"qwen3": transformers.Qwen3Config, "llama": transformers.LlamaConfig}[family](
            **common, **SIZE, **options
        )
        kind = transformers.AutoModelForCausalLM
    with torch.random.fork_rng():
        torch.manual_seed(2)
        kind.from_config(config).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder
