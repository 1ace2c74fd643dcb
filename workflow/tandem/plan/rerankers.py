"""Published cross-encoders and language models that re-rank, as stages."""

from pathlib import Path

from tandem.config.language_models import HostedModel
from tandem.errors import UserError
from tandem.models.heads import check_reranker
from tandem.plan.context import Context, json_of, require_name
from tandem.plan.encoders import encoder
from tandem.plan.fusions import is_taken
from tandem.plan.graph import JSON, Stage
from tandem.plan.towers import HUB, folder_of, pinned
from tandem.store.files import fingerprint


def plan_reranker(ctx: Context, name: str) -> Stage:
    """The stage that makes a published cross-encoder one of the project's; its files are pinned as an encoder's are."""
    entry = ctx.settings.rerankers[name]
    if entry.source != "hub":
        check_reranker(folder_of(entry))
    start = encoder(ctx, name)
    return ctx.stage("reranker", start.dataset, start.name, {}, {"encoder": start})


def rerank_by_llm(ctx: Context, system: str, name: str, upstream: dict[str, Stage], depth: int, split: str) -> Stage:
    """The stage that re-ranks a run by a language model; `upstream` are the dataset and the run."""
    entry = ctx.settings.llm_rerankers[name]
    params, execution = llm_stage(entry, f"llm_rerankers.{name}")
    params["depth"] = min(depth, params.pop("top", depth))
    return ctx.stage("rerank_llm", upstream["dataset"].dataset, f"{system}.{split}", params, upstream, execution)


def llm_stage(entry: HostedModel, at: str) -> tuple[JSON, JSON]:
    """Parameters and execution of a stage that asks a language model; `at` is the path of its entry."""
    check_llm(entry, at)
    params, execution = json_of(entry, without=("endpoint",)), {}
    if entry.endpoint:
        params["url"], execution["endpoint"] = entry.endpoint.url, json_of(entry.endpoint)
    elif Path(entry.model).is_dir():
        params["fingerprint"] = fingerprint(Path(entry.model))
    else:
        params["revision"] = pinned(entry.model, entry.revision)
    return params, execution


def check_llm(entry: HostedModel, at: str) -> None:
    """Refuse an entry whose model in this process is neither a folder with safetensors nor a name of the hub."""
    if entry.endpoint:
        return
    folder = Path(entry.model)
    if not folder.is_dir() and not HUB.fullmatch(entry.model):
        raise UserError(f"{at}.model is {entry.model}, neither a folder nor organisation/name; or name an endpoint")
    if folder.is_dir() and not list(folder.glob("*.safetensors")):
        raise UserError(f"{at}.model: {folder} holds no safetensors; only these are loaded")


def check_name(ctx: Context, block: str, name: str) -> None:
    """Refuse an entry of `rerankers` or `llm_rerankers` whose name is taken."""
    require_name(block, name)
    if is_taken(ctx, block, name) or name in ctx.settings.encoders or name in ctx.settings.scorers:
        raise UserError(f"{block}.{name} has the name of another model or run; name it otherwise")
