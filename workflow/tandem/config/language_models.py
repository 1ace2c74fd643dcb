"""Language models that re-rank or grade: in this process, or behind an OpenAI-compatible server."""

from typing import Literal, Self, get_args

from pydantic import Field, model_validator

from tandem.config.base import Precision, Section, by_value, problem


class Endpoint(Section):
    """How an OpenAI-compatible server is asked; nothing here changes an answer."""

    url: str = Field(pattern="^https?://", description="its address with the version, such as http://localhost:8000/v1")
    key: str | None = Field(None, description="environment variable that holds its key; null: it needs none")
    timeout: float = Field(60.0, gt=0, description="seconds that an answer may take")
    retries: int = Field(5, ge=0, description="repetitions of a request that fails or meets a rate limit, ever later")
    at_once: int = Field(4, ge=1, description="questions that are asked at a time")


class LanguageModel(Section):
    """Which model, and what it reads."""

    model: str = Field(description="folder or organisation/name on the hub; with `endpoint` the name it has there")
    revision: str | None = Field(None, description="of the hub: the commit; null: main, which may move")
    characters: int = Field(2000, ge=1, description="of a passage: the model reads its first ones, at most so many")
    precision: Precision = Field("auto", description="of a model in this process; auto: bf16 where the device has it")


class HostedModel(LanguageModel):
    """A language model, and where it runs."""

    endpoint: Endpoint | None = Field(None, description="server that is asked; null: the model runs in this process")

    @model_validator(mode="after")
    def _of_the_hub(self) -> Self:
        if self.endpoint and self.revision:
            raise problem(f".revision is {self.revision}, but the endpoint has its own model; leave it out")
        return self


class LlmReranker(HostedModel):
    """A language model that re-ranks, an entry of `llm_rerankers`: what all methods share."""

    @model_validator(mode="after")
    def _asked_by_chat(self) -> Self:
        if self.endpoint and (form := getattr(self, "form", "chat")) != "chat":
            raise problem(f".form is {form}, but an endpoint is asked by chat alone; leave it out")
        return self


class YesNo(LlmReranker):
    """A passage's score is how much likelier the model answers yes than no (monoT5: true than false)."""

    method: Literal["yes_no"] = Field(description="how it re-ranks")
    form: Literal["chat", "qwen3", "monot5"] = Field(
        "chat", description="of the prompt: chat: any chat model's; qwen3, monot5: as these re-rankers were trained"
    )
    instruction: str = Field(
        "Given a web search query, retrieve relevant passages that answer the query",
        description="of chat and qwen3: what makes a passage relevant",
    )


class Listwise(LlmReranker):
    """The model names the order of a window of passages, which slides from the end of the list to its top (RankGPT)."""

    method: Literal["listwise"] = Field(description="how it re-ranks")
    window: int = Field(20, ge=2, description="passages that are ordered at once")
    step: int = Field(10, ge=1, description="passages that the window moves up")

    @model_validator(mode="after")
    def _overlapping(self) -> Self:
        if self.step >= self.window:
            raise problem(f".step is {self.step}; allowed: < window ({self.window})")
        return self


class Pairwise(LlmReranker):
    """The model says which of two passages is the better one, asked in both orders (duoT5, PRP)."""

    method: Literal["pairwise"] = Field(description="how it re-ranks")
    form: Literal["chat", "duot5"] = Field(
        "chat", description="of the prompt: chat: any chat model's; duot5: as that re-ranker was trained"
    )
    top: int = Field(10, ge=2, description="passages that are compared: the first ones, at most `rerank.depth`")
    passes: int | None = Field(
        None,
        ge=1,
        description="null: all pairs, top · (top - 1) questions a query; else passes of neighbours from the end to the "
        "top, which find as many best passages by at most passes · (2 · top - passes - 1) questions",
    )

    @model_validator(mode="after")
    def _fewer_than_all(self) -> Self:
        if self.passes and self.passes >= self.top:
            raise problem(f".passes is {self.passes}; allowed: < top ({self.top})")
        return self


class Grading(LanguageModel):
    """Grades from 0 to 3 for passages that nobody judged, and for some that people judged."""

    depth: int = Field(10, ge=1, description="passages at the top of each system that are graded if nobody judged them")
    sample: int = Field(200, ge=0, description="judged pairs that are graded too: do people and the model agree?")
    scale: Literal["binary", "graded"] = Field(
        "binary", description="labels that grades become: 0 and 1, or, where people graded from 0 to 3 too, the grades"
    )
    relevant_from: int = Field(2, ge=1, le=3, description="lowest grade that counts as relevant")
    tokens: int = Field(64, ge=1, description="of an answer, at most; models that think aloud need more")


class LlmJudge(Grading, HostedModel):
    """A language model that grades passages at the top of `systems` (UMBRELA)."""


LlmEntry = YesNo | Listwise | Pairwise
LLM_METHODS: dict[str, type[LlmEntry]] = by_value("method", *get_args(LlmEntry))
