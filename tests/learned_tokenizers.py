"""Fast tokenizers of every kind, which have learned a few hundred pieces."""

import transformers

KINDS = [
    "Bert",
    "Roberta",
    "MPNet",
    "Qwen2",
    "Llama",
    "Gemma",
    "T5",
    "XLMRoberta",
    "Camembert",
    "Albert",
    "DebertaV2",
]
# What the tokenizers learn from: with the spelling of special tokens, as a corpus may have it.
CORPUS = [
    "The otters eat fish, crabs & more: 12 of 30!",
    "markup such as </s> <s> <pad> <mask> <eos> [SEP] [MASK]",
    "< > / | [ ] s p a d m k e o n d f t x u b r g i c l SEP CLS MASK PAD UNK",
] * 20
ORDINARY = [
    "The otters eat fish, and crabs.",
    " two  spaces\nand a line",
    "",
    "Ünïcode 水獺 fish-eaters 12",
    "a < b > [c] /s",
]


def learn_tokenizer(kind):
    """A fast tokenizer of a kind, which has learned a few hundred pieces."""
    learned = getattr(transformers, f"{kind}Tokenizer")().train_new_from_iterator(CORPUS, 300)
    if kind == "Qwen2":  # whose turns are added tokens
        learned.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    return learned
