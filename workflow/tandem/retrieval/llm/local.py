"""A language model of transformers, in this process: decoders, and encoders with a decoder such as T5."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tandem.cluster.progress import say
from tandem.errors import UserError
from tandem.models.device import device, place, resolve_precision
from tandem.models.hub import COMMIT, check_weights, loading
from tandem.retrieval.llm import Answer


class LocalModel:
    """A model of a folder or of the hub, which computes one prompt at a time.

    `chat` puts prompts into the tokenizer's chat template, if it has one. A `UserError` where the model cannot be
    loaded, or has no head that predicts tokens, and of a prompt longer than it takes.
    """

    model: Any

    def __init__(self, name: str, revision: str | None, precision: str, chat: bool) -> None:
        from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer
        from transformers.generation import GenerationConfig

        if not Path(name).is_dir() and not COMMIT.fullmatch(revision or ""):
            say(f"warning: {name} is what {revision or 'main'} is today; pin it by tandem prefetch, or by revision")
        pinned: dict[str, Any] = {"revision": revision or "main", "trust_remote_code": False}
        dtype = torch.bfloat16 if resolve_precision(precision) == "bf16" else torch.float32
        with loading(Path(name)):
            config = AutoConfig.from_pretrained(name, **pinned)
            kind = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
            self.tokenizer = AutoTokenizer.from_pretrained(name, **pinned)
            pinned |= {"output_loading_info": True, "ignore_mismatched_sizes": True}
            self.model, report = kind.from_pretrained(name, dtype=dtype, use_safetensors=True, **pinned)
        check_weights(Path(name), report, sorted(report["missing_keys"]))
        self.model.eval().to(device())
        own = self.model.generation_config
        ends = {"eos_token_id": own.eos_token_id, "decoder_start_token_id": own.decoder_start_token_id}
        self.model.generation_config = GenerationConfig(**ends)  # no penalties, beams and what else a folder sets
        self.name, self.seq2seq = name, bool(config.is_encoder_decoder)
        self.longest = None if self.seq2seq else getattr(config, "max_position_embeddings", None)
        self.chat = chat and bool(self.tokenizer.chat_template)

    @torch.inference_mode()
    def compare(self, prompt: str, words: tuple[str, str]) -> Answer:
        """logit(first word) − logit(second word) at the answer's beginning."""
        first, second = (self._token(word) for word in words)
        inputs, options = self._inputs(prompt, 1), dict[str, Any](logits_to_keep=1)
        if self.seq2seq:
            start = self.model.config.decoder_start_token_id
            options = {"decoder_input_ids": torch.tensor([[start]], device=device())}
        logits = self.model(**inputs, **options).logits[0, -1].float()  # of the answer's first token, (vocabulary,)
        return Answer("", float(logits[first] - logits[second]), inputs["input_ids"].shape[1], 1)

    @torch.inference_mode()
    def complete(self, prompt: str, tokens: int) -> Answer:
        """The likeliest word after word; thoughts that the chat template begins begin with `<think>`."""
        inputs = self._inputs(prompt, tokens)
        read = inputs["input_ids"].shape[1]
        options = {"max_new_tokens": tokens, "do_sample": False, "pad_token_id": self.tokenizer.eos_token_id}
        ids = self.model.generate(**inputs, **options)[0, 0 if self.seq2seq else read :]
        thinks = self.chat and self._in_template("").rstrip().endswith("<think>")
        text = "<think>" * thinks + self.tokenizer.decode(ids, skip_special_tokens=True)
        return Answer(text, None, read, len(ids))

    def _inputs(self, prompt: str, tokens: int) -> dict[str, Tensor]:
        """A prompt's token ids; a `UserError` if it leaves no room for an answer of so many tokens."""
        if self.chat:
            prompt = self._in_template(prompt)
        inputs = self.tokenizer([prompt], return_tensors="pt", add_special_tokens=not self.chat)
        length = inputs["input_ids"].shape[1]
        if self.longest and length + tokens > self.longest:
            problem = f"a prompt has {length} tokens and its answer {tokens}, the model takes {self.longest}"
            raise UserError(f"{self.name}: {problem}; lower characters, or window")
        return {name: place(inputs[name]) for name in ("input_ids", "attention_mask")}

    def _in_template(self, prompt: str) -> str:
        turns = [{"role": "user", "content": prompt}]
        return str(self.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))

    def _token(self, word: str) -> int:
        ids: list[int] = self.tokenizer(word, add_special_tokens=False)["input_ids"]
        if len(ids) != 1 or ids[0] == self.tokenizer.unk_token_id:
            raise UserError(f"{self.name}: its tokenizer has no single token for {word!r}; choose another form")
        return ids[0]
