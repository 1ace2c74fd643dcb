"""Tiny encoders of the families that Hugging Face has, each with a tokenizer of its own kind."""

import pytest
from tiny_encoders import FAMILIES, SIZE


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
