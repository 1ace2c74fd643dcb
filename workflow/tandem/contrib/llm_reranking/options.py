"""Options of language models that re-rank, the entries of `llm_rerankers`, and the parameters of their stage."""

from operator import not_
from typing import Literal, Self, get_args

from pydantic import Field, model_validator

from tandem.config.base import by_value, problem
from tandem.config.retrieval import Reranks
from tandem.extras.language_models.options import HostedModel, LlmParams, UnlikelyBelow
from tandem.stages.base import Planned


class LlmReranker(Reranks, HostedModel):
    """A language model that re-ranks, an entry of `llm_rerankers`: the keys that all methods share."""

    @model_validator(mode="after")
    def _asked_by_chat(self) -> Self:
        form = getattr(self, "form", "chat")
        if self.endpoint and form != "chat":
            raise problem(f".form is {form}, but an endpoint is asked by chat alone; leave it out")
        return self

    @model_validator(mode="after")
    def _in_a_template(self) -> Self:
        form = getattr(self, "form", "chat")
        if self.chat_template_kwargs and form != "chat":
            raise problem(
                f".chat_template_kwargs is set, but form {form} has a template of its own; leave it out"
            )
        return self


class YesNo(LlmReranker):
    """A passage's score is how much likelier the model answers yes than no (monoT5: true than false)."""

    method: Literal["yes_no"] = Field(description="how it re-ranks")
    form: Literal["chat", "qwen3", "monot5"] = Field(
        "chat",
        description="of the prompt: chat: for any chat model; qwen3, monot5: as these re-rankers were trained",
    )
    instruction: str = Field(
        "Given a web search query, retrieve relevant passages that answer the query",
        description="of chat and qwen3: what makes a passage relevant",
    )
    unlikely_below: UnlikelyBelow = 0.05


class Listwise(LlmReranker):
    """The model names the order of a window of passages, which slides from the end of the list to its top (RankGPT)."""

    orders_together = True
    method: Literal["listwise"] = Field(description="how it re-ranks")
    window: int = Field(20, ge=2, description="passages that are ordered at once")
    step: int = Field(10, ge=1, description="passages that the window moves up")

    @model_validator(mode="after")
    def _overlapping(self) -> Self:
        if self.step >= self.window:
            raise problem(f".step is {self.step}; allowed: < window ({self.window})")
        return self


class Pairwise(LlmReranker):
    """The model names the better one of two passages, which it reads in both orders (duoT5, PRP)."""

    orders_together = True
    method: Literal["pairwise"] = Field(description="how it re-ranks")
    form: Literal["chat", "duot5"] = Field(
        "chat",
        description="of the prompt: chat: for any chat model; duot5: as that re-ranker was trained",
    )
    top: int = Field(
        10, ge=2, description="passages that are compared: the first ones, at most `rerank.depth`"
    )
    passes: int | None = Field(
        None,
        ge=1,
        description="null: all pairs, top · (top - 1) questions per query; else passes over neighbours from the end to "
        "the top, which find this many best passages with at most passes · (2 · top - passes - 1) questions",
    )
    unlikely_below: UnlikelyBelow = 0.05

    @model_validator(mode="after")
    def _fewer_than_all(self) -> Self:
        if self.passes and self.passes >= self.top:
            raise problem(f".passes is {self.passes}; allowed: < top ({self.top})")
        return self


LlmEntry = YesNo | Listwise | Pairwise
LLM_METHODS: dict[str, type[LlmEntry]] = by_value("method", *get_args(LlmEntry))


class RerankLlmParams(LlmParams):
    """Re-ranking of a run's top by a language model."""

    depth: int = Field(50, ge=1, description="documents that are re-ranked per query")
    method: Literal["yes_no", "listwise", "pairwise"] = Field(description="how it re-ranks")
    form: str = Field("chat", description="of yes_no and pairwise: form of the prompt")
    instruction: str = Field("", description="of yes_no: what makes a passage relevant")
    window: int = Field(20, ge=2, description="of listwise: passages that are ordered at once")
    step: int = Field(10, ge=1, description="of listwise: passages that the window moves up")
    passes: int | None = Field(
        None,
        ge=1,
        exclude_if=not_,
        description="of pairwise: passes over neighbours; null: all pairs",
    )
    unlikely_below: UnlikelyBelow = 0.05


def scores_places(stage: Planned) -> bool:
    """Return whether a stage's scores are only places, from orders that the model names or passes over neighbours."""
    return stage.values["method"] == "listwise" or bool(stage.values.get("passes"))
