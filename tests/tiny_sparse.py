"""Tiny masked language models and sparse encoders, made on the spot with random weights."""

from pathlib import Path

import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer, BertConfig

from tandem.config.representations import REPRESENTATIONS, representation
from tandem.models.dual import DualEncoder
from tandem.store.artifact import open_artifact
from tandem.store.files import write_json
from tandem.store.job import writing


def masked_lm_folder(folder: Path, encoder_folder: Path, seed: int = 7, bias: float = -2.0) -> Path:
    """A BERT with its head over the tiny corpus' tokenizer; its logits are far apart and mostly below 0."""
    tokenizer = AutoTokenizer.from_pretrained(encoder_folder)
    config = BertConfig.from_pretrained(encoder_folder)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForMaskedLM.from_config(config)
        torch.nn.init.constant_(model.get_output_embeddings().bias, bias)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def start(
    folder: Path, shared: bool = True, prompts: dict[str, str] | None = None, **options: object
) -> DualEncoder:
    """A sparse encoder from a masked language model's folder."""
    chosen = REPRESENTATIONS["sparse"].model_validate(options)
    more = {"representation": chosen.model_dump(), "prompts": prompts or {}}
    return representation["sparse"].start(folder, shared, "max", False, 1.0, **more)


def sparse_model(make_job, out: Path, folder: Path, encoder, **options: object):
    """A model artifact with the sparse encoder that starts from a masked language model's folder."""
    model = start(folder, **options)
    with writing(
        make_job("model", out, {"objective": "dual", "train": {"seed": 0}}, {"encoder": encoder})
    ) as draft:
        model.save(draft.folder / "dual", AutoTokenizer.from_pretrained(folder))
        write_json(draft.path("model.json"), {"objective": "dual"})
    return open_artifact(out)
