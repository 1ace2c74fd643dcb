"""A language model of transformers, in this process: decoders, and encoders with a decoder such as T5."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tandem.cluster.progress import say
from tandem.errors import UserError
from tandem.extras.language_models.answers import ModelAnswer
from tandem.extras.language_models.options import LlmParams
from tandem.extras.language_models.prompts import CHAT
from tandem.models.device import device, move_to_device, resolve_precision
from tandem.models.hub import COMMIT_PATTERN, check_weights, report_loading
from tandem.models.plain_text import PlainTextTokenizer
from tandem.models.tokens import Template


class LocalModel:
    """A model from a folder or the hub, which computes one prompt at a time.

    Only a template or a tokenizer can put a special token into a prompt: a special token that is written in a prompt's
    text is read as the characters it is written with.

    A `UserError` if the model cannot be loaded, or has no head that predicts tokens, and for a prompt longer than the
    model takes.

    Args:
        template: Jinja of the whole input, in which `messages[0].content` is the prompt; `CHAT`: the tokenizer's own
            chat template, or no template if it has none; None: prompts are read unchanged.
    """

    model: Any

    def __init__(self, params: LlmParams, template: str | None) -> None:
        from transformers import (
            AutoConfig,
            AutoModelForCausalLM,
            AutoModelForSeq2SeqLM,
            AutoTokenizer,
        )
        from transformers.generation import GenerationConfig

        self.params = params
        self.name = params.model
        folder = Path(self.name)
        revision = params.revision
        if not folder.is_dir() and not COMMIT_PATTERN.fullmatch(revision or ""):
            say(
                f"warning: {self.name} is what {revision or 'main'} is today; pin it by tandem prefetch, or by revision"
            )
        pinned: dict[str, str | bool] = {"revision": revision or "main", "trust_remote_code": False}
        dtype = torch.bfloat16 if resolve_precision(params.precision) == "bf16" else torch.float32
        with report_loading(folder):
            config = AutoConfig.from_pretrained(self.name, **pinned)
            kind = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
            self.tokenizer = AutoTokenizer.from_pretrained(self.name, **pinned)
            pinned |= {"output_loading_info": True, "ignore_mismatched_sizes": True}
            self.model, report = kind.from_pretrained(
                self.name, dtype=dtype, use_safetensors=True, **pinned
            )
        check_weights(folder, report, sorted(report["missing_keys"]))
        self.model.eval().to(device())
        own = self.model.generation_config
        ends = {
            "eos_token_id": own.eos_token_id,
            "decoder_start_token_id": own.decoder_start_token_id,
        }
        # no penalties, beams or other settings of a folder
        self.model.generation_config = GenerationConfig(**ends)
        self.seq2seq = bool(config.is_encoder_decoder)
        self.longest = None if self.seq2seq else getattr(config, "max_position_embeddings", None)
        self.is_chat = template == CHAT
        self.template = template
        if self.is_chat:
            self.template = (
                self.tokenizer.get_chat_template() if self.tokenizer.chat_template else None
            )
        # Not only transformers' split_special_tokens, with which T5 still takes a "</s>" in a text for the end.
        self.plain = (
            PlainTextTokenizer(self.tokenizer)
            if self.template is None and self.tokenizer.is_fast
            else None
        )
        self._say_unused_variables()

    @torch.inference_mode()
    def compare(self, prompt: str, words: tuple[str, str]) -> ModelAnswer:
        """Return logit(first word) − logit(second word) at the answer's beginning.

        For a chat model, a word's likeliest form counts: with a capital letter or without, after a space or not.
        """
        first, second = (self._forms(word) for word in words)
        inputs = self._inputs(prompt, 1)
        options: dict[str, object] = {"logits_to_keep": 1}
        if self.seq2seq:
            start = self.model.config.decoder_start_token_id
            options = {"decoder_input_ids": torch.tensor([[start]], device=device())}
        with self._in_float32([*first, *second]):
            # logits of the answer's first token, (vocabulary,)
            logits = self.model(**inputs, **options).logits[0, -1]
        score = float(logits[first].max() - logits[second].max())
        share = float(logits.softmax(0)[list({*first, *second})].sum())
        likeliest = self.tokenizer.decode([int(logits.argmax())])
        return ModelAnswer(likeliest, score, inputs["input_ids"].shape[1], 1, share)

    @torch.inference_mode()
    def complete(self, prompt: str, tokens: int) -> ModelAnswer:
        """Return the likeliest token at each step; thoughts that the chat template begins start with `<think>`."""
        tokens = self.params.max_completion_tokens or tokens
        inputs = self._inputs(prompt, tokens)
        read = inputs["input_ids"].shape[1]
        options = {
            "max_new_tokens": tokens,
            "do_sample": False,
            "pad_token_id": self.tokenizer.eos_token_id,
        }
        ids = self.model.generate(**inputs, **options)[0, 0 if self.seq2seq else read :]
        thinks = self.template and self._rendered(
            "", self.params.chat_template_kwargs
        ).rstrip().endswith("<think>")
        text = ("<think>" if thinks else "") + self.tokenizer.decode(ids, skip_special_tokens=True)
        return ModelAnswer(text, None, read, len(ids))

    @contextmanager
    def _in_float32(self, rows: list[int]) -> Iterator[None]:
        """Make the model compute some tokens' logits in float32, as cross-encoders do: bf16 has few values near 20.

        Later operations on the head's result, such as a cap, are done in float32, too.
        """
        head: nn.Linear = self.model.get_output_embeddings()

        def compute(_: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
            """Return the head's output with the words' rows computed in float32."""
            # Products and a sum: a GPU may compute a matrix multiplication in TF32.
            logits = (inputs[0].float().unsqueeze(-2) * head.weight[rows].float()).sum(-1)
            if head.bias is not None:
                logits = logits + head.bias[rows].float()
            exact = output.float()
            exact[..., rows] = logits
            return exact

        handle = head.register_forward_hook(compute)
        try:
            yield
        finally:
            handle.remove()

    def _inputs(self, prompt: str, tokens: int) -> dict[str, Tensor]:
        """Return a prompt's token ids; a `UserError` if it leaves no room for an answer of so many tokens."""
        if self.plain is not None:
            before, after = Template.of(self.tokenizer).single
            ids = torch.tensor([[*before, *self.plain.tokenise([prompt])[0][0], *after]])
            inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        elif self.template is None:
            inputs = self.tokenizer([prompt], return_tensors="pt", split_special_tokens=True)
        else:
            try:
                inputs = self._in_template(
                    prompt, return_tensors="pt", sanitize_control_tokens=True
                )
            except ValueError as error:
                raise UserError(
                    f"{self.name}: its tokenizer cannot read a prompt as text: {error}"
                ) from None
        length = inputs["input_ids"].shape[1]
        if self.longest and length + tokens > self.longest:
            problem = f"a prompt has {length} tokens and its answer {tokens}, the model takes {self.longest}"
            raise UserError(f"{self.name}: {problem}; lower characters, or window")
        return {name: move_to_device(inputs[name]) for name in ("input_ids", "attention_mask")}

    def _rendered(self, prompt: str, variables: dict[str, object]) -> str:
        turns = [{"role": "user", "content": prompt}]
        options = {"chat_template": self.template, "add_generation_prompt": True}
        return str(
            self.tokenizer.apply_chat_template(turns, tokenize=False, **options, **variables)
        )

    def _in_template(self, prompt: str, **options: Any) -> Any:
        turns = [{"role": "user", "content": prompt}]
        options |= {
            "chat_template": self.template,
            "add_generation_prompt": True,
            "return_dict": True,
        }
        return self.tokenizer.apply_chat_template(
            turns, **options, **self.params.chat_template_kwargs
        )

    def _say_unused_variables(self) -> None:
        """Warn of variables that do not change the chat template's output: their value is its default, or misnamed."""
        variables = self.params.chat_template_kwargs
        for name in variables:
            others = {other: value for other, value in variables.items() if other != name}
            if self.template is None or self._rendered("?", others) == self._rendered(
                "?", variables
            ):
                say(
                    f"warning: {self.name}: chat_template_kwargs.{name} changes nothing in its chat template"
                )

    def _forms(self, word: str) -> list[int]:
        """Return the tokens of a word, in each of its forms if the model answers in a chat."""
        plain = self._token(word)
        if plain is None:
            raise UserError(
                f"{self.name}: its tokenizer has no single token for {word!r}; choose another form"
            )
        if not self.is_chat:
            return [plain]
        written = product(("", " "), (word, word.lower(), word.capitalize(), word.upper()))
        tokens = [self._token(blank + form) for blank, form in written]
        return sorted({token for token in tokens if token is not None})

    def _token(self, word: str) -> int | None:
        """Return a word's only token; None if it has several, or no known one."""
        ids: list[int] = self.tokenizer(word, add_special_tokens=False)["input_ids"]
        return ids[0] if len(ids) == 1 and ids[0] != self.tokenizer.unk_token_id else None
