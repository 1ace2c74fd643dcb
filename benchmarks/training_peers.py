"""The peers' side of the training benchmark: sentence-transformers' trainers, and a plain Hugging Face loop for joint
training. Encoder, texts, batches and optimizer are the same as ours.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from texts import Examples
from torch import Tensor

LR, TEMPERATURE = 2e-5, 0.05
STEP = {"de": (32, 2), "ce": (8, 4), "joint": (8, 8)}  # queries of a step, passages of a list


def crossed(folder: Path) -> Path:
    """Return the folder of a cross-encoder with this encoder and a new head, for both sides; create it if missing."""
    from tandem.models.cross import CrossEncoder
    from tandem.models.hub import load_tokenizer

    target = folder.with_name(f"{folder.name}-cross")
    if not target.is_dir():
        torch.manual_seed(1)
        CrossEncoder.start(folder, "mean").save(target, load_tokenizer(folder))
    return target


def columns(what: str, examples: Examples) -> dict[str, list[Any]]:
    """Return training texts in the form that sentence-transformers needs, in our order."""
    if what == "de":
        positives, negatives = zip(*examples.passages, strict=True)
        return {
            "anchor": examples.queries,
            "positive": list(positives),
            "negative": list(negatives),
        }
    pairs = [
        (q, p, float(i == 0))
        for q, group in zip(examples.queries, examples.passages, strict=True)
        for i, p in enumerate(group)
    ]
    return dict(
        zip(("query", "passage", "label"), map(list, zip(*pairs, strict=True)), strict=True)
    )


def model_and_loss(what: str, folder: Path) -> tuple[Any, Any]:
    """Return their model over the starting encoder, without dropout, and their loss that equals ours."""
    if what == "de":
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

        model = SentenceTransformer(str(folder))
        loss = MultipleNegativesRankingLoss(model, scale=1 / TEMPERATURE)
    else:
        from sentence_transformers import CrossEncoder
        from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

        model = CrossEncoder(str(crossed(folder)))
        loss = BinaryCrossEntropyLoss(model)
    model.max_seq_length = 160
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model, loss


def train(
    what: str, folder: Path, out: Path, examples: Examples, precision: str, steps: int
) -> None:
    """Train `steps` steps."""
    if what == "joint":
        plain(folder, examples, precision, steps)
        return
    from datasets import Dataset

    if what == "de":
        from sentence_transformers import SentenceTransformerTrainer as Trainer
        from sentence_transformers import SentenceTransformerTrainingArguments as Arguments
    else:
        from sentence_transformers.cross_encoder import CrossEncoderTrainer as Trainer
        from sentence_transformers.cross_encoder import CrossEncoderTrainingArguments as Arguments
    model, loss = model_and_loss(what, folder)
    queries, size = STEP[what]
    arguments = Arguments(
        output_dir=str(out), max_steps=steps, per_device_train_batch_size=queries * (size if what == "ce" else 1),
        learning_rate=LR, lr_scheduler_type="constant", weight_decay=0.01, max_grad_norm=1.0, optim="adamw_torch_fused",
        bf16=precision == "bf16", use_cpu=not torch.cuda.is_available(), report_to="none", save_strategy="no",
        logging_strategy="no", disable_tqdm=True, seed=1,
    )  # fmt: skip
    Trainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_dict(columns(what, examples)),
        loss=loss,
    ).train()


def gradients(what: str, folder: Path, examples: Examples) -> dict[str, Tensor]:
    """Return the gradients of the first batch in float32, by parameter of the encoder."""
    queries, size = STEP[what]
    if what == "joint":
        models = joint_models(folder)
        joint_loss(models, examples, range(queries), size).backward()
        named = [(f"{part}.{name}", p) for part, model in models.items() if part != "tokenizer"
                 for name, p in model.named_parameters()]  # fmt: skip
        return {name: p.grad for name, p in named if p.grad is not None}
    model, loss = model_and_loss(what, folder)
    model.eval()
    inputs = columns(what, Examples(examples.queries[:queries], examples.passages[:queries]))
    label = torch.tensor(inputs.pop("label")) if "label" in inputs else None
    if what == "de":
        loss([model.preprocess(texts) for texts in inputs.values()], label).backward()
    else:
        loss(list(inputs.values()), label).backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def joint_models(folder: Path) -> dict[str, Any]:
    """Return a dual encoder's tower, a cross-encoder with its head, and their tokenizer, as objects of transformers."""
    from transformers import AutoModel, AutoTokenizer

    from tandem.models.cross import CrossEncoder

    cross = CrossEncoder.load(crossed(folder))
    models = {
        "dual": AutoModel.from_pretrained(folder, add_pooling_layer=False),
        "cross": cross.encoder,
        "head": cross.head,
    }
    for model in models.values():
        model.to("cuda" if torch.cuda.is_available() else "cpu").eval()
    return models | {"tokenizer": AutoTokenizer.from_pretrained(folder)}


def joint_loss(models: dict[str, Any], examples: Examples, chosen: range, size: int) -> Tensor:
    """Return RocketQAv2's loss over a batch padded to its longest text, written plainly: the mean over queries."""
    tokenizer, where = models["tokenizer"], next(models["head"].parameters()).device
    queries = [examples.queries[i] for i in chosen]
    passages = [text for i in chosen for text in examples.passages[i]]

    def vectors(model: Any, *texts: list[str]) -> Tensor:
        """Return the mean of each text's token vectors."""
        inputs = tokenizer(
            *texts, padding=True, truncation=True, max_length=160, return_tensors="pt"
        ).to(where)
        hidden, mask = (
            model(**inputs).last_hidden_state.float(),
            inputs["attention_mask"][..., None].float(),
        )
        return (hidden * mask).sum(1) / mask.sum(1)

    q, p = (
        torch.nn.functional.normalize(vectors(models["dual"], texts), dim=-1)
        for texts in (queries, passages)
    )
    de = torch.einsum("qd,qld->ql", q, p.view(len(queries), size, -1)) / TEMPERATURE
    ce = models["head"](
        vectors(models["cross"], [q for q in queries for _ in range(size)], passages)
    ).view(-1, size)
    log_de, log_ce = de.log_softmax(-1), ce.log_softmax(-1)
    return ((log_de.exp() * (log_de - log_ce)).sum(-1) - log_ce[:, 0]).mean()


def plain(folder: Path, examples: Examples, precision: str, steps: int) -> None:
    """Train by a loop of a dozen lines."""
    models = joint_models(folder)
    learning = [
        p for name, model in models.items() if name != "tokenizer" for p in model.parameters()
    ]
    optimizer = torch.optim.AdamW(learning, lr=LR, weight_decay=0.01, fused=True)
    queries, size = STEP["joint"]
    for step in range(steps):
        with autocast(precision):
            loss = joint_loss(models, examples, range(step * queries, (step + 1) * queries), size)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learning, 1.0)
        optimizer.step()


@contextlib.contextmanager
def autocast(precision: str) -> Iterator[None]:
    """Run forward passes within the context in this precision."""
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.autocast(kind, dtype=torch.bfloat16, enabled=precision == "bf16"):
        yield
