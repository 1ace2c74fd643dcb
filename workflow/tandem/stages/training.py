"""Encoders, token ids, pre-training and training."""

from tandem.stages.base import Kind

STARTS = ("start", "retriever", "reranker")

ENCODER = Kind(name="encoder", run="models.hub:run", env="models", box="Training")
VOCABULARY = Kind(
    name="vocabulary", run="extras.pretraining.vocabulary:run", env="models", threads="all", box="Training"
)
TOKENS = Kind(name="tokens", run="models.tokens:run", env="models", threads="all", box="Data")
PRETRAIN = Kind(
    name="pretrain", run="extras.pretraining.stage:run", env="models", threads="all", retries=2, gpu=STARTS, ranks=True,
    box="Training",
)  # fmt: skip
MODEL = Kind(
    name="model", run="training.stage:run", env="models", threads="all", retries=2, gpu=STARTS, ranks=True,
    box="Training",
)  # fmt: skip
CHECKPOINT = Kind(
    name="checkpoint", run="training.stage:run", env="models", threads="all", retries=2, gpu=STARTS, ranks=True,
    box="Training",
)  # fmt: skip

KINDS = (ENCODER, VOCABULARY, TOKENS, PRETRAIN, MODEL, CHECKPOINT)
