"""Which language model a stage asks, and the file that keeps its answers."""

import hashlib
import json
from functools import partial
from pathlib import Path
from typing import Any

from tandem.config.language_models import Endpoint
from tandem.retrieval.llm.answers import Answers, Model
from tandem.retrieval.llm.endpoint import Server
from tandem.stages.retrieval import LlmParams
from tandem.store.job import Job


def open_answers(job: Job[Any], chat: bool) -> Answers:
    """The answers of a stage's model; the stage's parameters are `LlmParams`.

    They are kept in `results/<dataset>/answers/<model>-<digest>.sqlite`, for all stages that ask the same model.

    Args:
        chat: put prompts into the chat template of a model in this process, if it has one.
    """
    params, endpoint = job.params, job.execution.endpoint
    if endpoint is None:
        from tandem.models.device import use_workers  # torch: not for those who ask a server

        use_workers(job.execution.workers)
    identity = params.model_dump(mode="json", include={"model", "revision", "fingerprint", "url", "precision"})
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:10]
    path = job.out.parent.parent / "answers" / f"{Path(params.model).name}-{digest}.sqlite"
    return Answers(path, partial(_open_model, params, endpoint, chat))


def _open_model(params: LlmParams, endpoint: Endpoint | None, chat: bool) -> Model:
    if endpoint is not None:
        return Server(endpoint, params.model)
    from tandem.retrieval.llm.local import LocalModel

    return LocalModel(params.model, params.revision, params.precision, chat)


def at_once(job: Job[Any]) -> int:
    """How many questions are asked at a time; a model in this process answers one after the other."""
    return job.execution.endpoint.at_once if job.execution.endpoint else 1
