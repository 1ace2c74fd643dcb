"""Plan the stages that draw training lists, and refuse lists that a configuration does not allow."""

from tandem.config.models import Candidates, ModelEntry
from tandem.config.references import Name
from tandem.data.splits import VALIDATED
from tandem.errors import UserError
from tandem.plan.context import (
    Context,
    checks_lists,
    json_of,
    plans_reference,
    require_depth,
)
from tandem.plan.dataset_stages import dataset, require_split
from tandem.plan.graph import Stage
from tandem.plan.named_entries import Scope, plan_reference, plan_references
from tandem.plan.reported import find_depth_key, run_depth
from tandem.plan.run_expressions import run
from tandem.plan.scoring import match_passages
from tandem.plan.starting_encoders import tokens
from tandem.stages.negatives import negatives

RANDOM = "random"  # passages of the whole corpus instead of a run's


def is_source(name: str) -> bool:
    """Return whether training lists come from a registered source of negatives, such as `random`, instead of a run."""
    return name in negatives and name != "run"


def check_lists(ctx: Context, at: str, entry: ModelEntry, data: str) -> None:
    """Refuse training lists that cannot be drawn, or are shorter than the training needs; joined lists, too.

    `data` is the model's dataset.
    """
    lists = entry.candidates
    for key in checks_lists:
        if any(getattr(drawn, key) for drawn in (lists, *lists.also)):
            checks_lists[key](at, entry)
    if lists.one_list and not lists.also:
        raise UserError(
            f"{at}.candidates.one_list joins a query's lists, but there is one; name others under also"
        )
    if any(more.one_list for more in lists.also):
        raise UserError(
            f"{at}.candidates.also: one_list is of candidates itself; leave it out there"
        )

    places = {"candidates": lists}
    for number, more in enumerate(lists.also):
        place = f"candidates.also.{number}"
        if more.also:
            raise UserError(f"{at}.{place}.also: lists are joined once; name them side by side")
        places[place] = more

    for place, drawn in places.items():
        _check_judging(f"{at}.{place}", drawn)
        _check_below_positive(f"{at}.{place}", drawn)
        _check_behind(f"{at}.{place}", drawn)
        _check_depth(ctx, at, place, drawn, data)
        if entry.train.sizes == "given" and not lists.one_list:
            _check_size(at, place, drawn.most_negatives, entry.train.list_size)
    if entry.train.sizes == "given" and lists.one_list:
        most = sum(drawn.most_negatives for drawn in places.values())
        _check_size(at, "candidates", most, entry.train.list_size)


def _has_scores(lists: Candidates) -> bool:
    """Return whether the source of the lists has scores: a run has them, the dataset's own lists do not."""
    return not is_source(lists.from_) and lists.from_ != "given"


def _check_judging(at: str, lists: Candidates) -> None:
    """Refuse labels without the run or the judge that they need, and denoising that does not fit them."""
    denoise = lists.denoise
    if lists.labels != "qrels" and lists.least_grade > 1:
        raise UserError(
            f"{at}.least_grade is {lists.least_grade}, but labels is {lists.labels}, which has no grades"
        )

    _check_ranks(at, lists)
    if lists.labels == "judge":
        if denoise is None or denoise.positive_above is None or denoise.hybrid:
            raise UserError(
                f"{at}.labels is judge, which needs denoise.positive_above and no denoise.hybrid"
            )
        if denoise.backfill:
            raise UserError(
                f"{at}.denoise.backfill: where the judge labels, unjudged passages are not negatives"
            )
        if lists.near_duplicates:
            why = "labels is judge, so there is no positive to compare with"
            raise UserError(f"{at}.near_duplicates: {why}; leave it out")

    if denoise and denoise.backfill and lists.negatives is None:
        raise UserError(
            f"{at}.denoise.backfill fills lists up to negatives, which is null; set it, or leave it out"
        )
    if denoise and denoise.backfill and lists.from_ == RANDOM:
        raise UserError(
            f"{at}.denoise.backfill: random draws depth passages and no more; raise depth, or leave it out"
        )
    if denoise and denoise.calibrate and (lists.labels != "qrels" or not _has_scores(lists)):
        raise UserError(
            f"{at}.denoise.calibrate needs a run `from` and labels: qrels, from which dev's pairs come"
        )
    if is_source(lists.from_) and (lists.labels != "qrels" or lists.bar_answers):
        raise UserError(
            f"{at}.from is random, which finds no answers and leaves a judge no positive; name a run"
        )


def _check_ranks(at: str, lists: Candidates) -> None:
    """Refuse labels by rank without the last rank of positives, and negatives from the ranks of positives."""
    if lists.labels != "rank":
        if lists.positives is not None:
            raise UserError(
                f"{at}.positives is of labels: rank, but labels is {lists.labels}; leave it out"
            )
        return
    if is_source(lists.from_):
        raise UserError(
            f"{at}.labels is rank, but from is {lists.from_}, which ranks no passage; name a run"
        )
    if lists.positives is None:
        raise UserError(
            f"{at}.labels is rank, which needs positives: how many of the run's first passages are some"
        )
    if lists.first_rank <= lists.positives:
        first = f"{at}.first_rank is {lists.first_rank}, but the first {lists.positives} passages are positives"
        raise UserError(f"{first}; raise it")
    if lists.bar_answers:
        raise UserError(f"{at}.bar_answers: labels is rank, which knows no answers; leave it out")


def _check_below_positive(at: str, lists: Candidates) -> None:
    """Refuse positive-aware mining without scores to compare, and by other judges than those of denoising."""
    below = lists.below_positive
    denoise = lists.denoise
    if below is None:
        return
    if lists.labels == "judge":
        why = "labels is judge, so there is no positive to compare with"
        raise UserError(f"{at}.below_positive: {why}; leave it out")
    if below.by is None:
        if not _has_scores(lists):
            raise UserError(
                f"{at}.below_positive: {lists.from_} has no scores of positives; say by: a cross-encoder"
            )
        return
    if denoise and denoise.by != below.by:
        names = f"{', '.join(below.by)}, but denoise.by is {', '.join(denoise.by)}"
        raise UserError(f"{at}.below_positive.by is {names}; lists have the same judges for both")
    if denoise and denoise.backfill:
        raise UserError(
            f"{at}.denoise.backfill: its passages are not judged; leave below_positive.by or it out"
        )


def _check_behind(at: str, lists: Candidates) -> None:
    """Refuse to compare the ranks of positives if a run has no ranks, or the two runs share no labels."""
    if lists.behind is None:
        return
    if lists.labels != "qrels":
        raise UserError(
            f"{at}.behind: labels is {lists.labels}, but two runs are compared by known positives; set qrels"
        )
    if not _has_scores(lists):
        raise UserError(f"{at}.behind: {lists.from_} ranks no passage for a query; draw from a run")


def _check_scores(at: str, lists: Candidates, pool: Stage) -> None:
    """Refuse a share of scores without a zero, and passages that a re-ranked run has no score for.

    A BM25 score is 0 if no term is shared, a cosine at a right angle. Logits, ranks and fused scores have no such zero:
    adding a constant does not change their meaning, so that a share of them means nothing.
    """
    below = lists.below_positive
    if below is None or below.by:
        return
    if pool.declared.scoring.of == "chosen":
        why = f"how deep the runs of {lists.from_} have scores is decided later"
        raise UserError(
            f"{at}.below_positive: {why}; draw lists from one of them, or say by: a cross-encoder"
        )
    if below.share is not None and not _has_zero(pool):
        why = f"the scores of {lists.from_} have no zero (neither BM25 nor a cosine)"
        raise UserError(f"{at}.below_positive.share: {why}; say margin, or by: a cross-encoder")
    deepest = _deepest(lists)
    if pool.declared.scoring.of == "top" and pool.values["depth"] < deepest:
        why = f"{lists.from_} re-ranks only {pool.values['depth']} passages per query"
        raise UserError(
            f"{at}.depth is {deepest}, but {why}, the others have no score; lower depth"
        )


def _has_zero(run: Stage) -> bool:
    zero = run.declared.scoring.zero
    if zero == "cosine":
        return bool(run.upstream["passages"].upstream["model"].values["normalize"])
    return zero == "always"


def _check_depth(ctx: Context, at: str, place: str, lists: Candidates, data: str) -> None:
    """Refuse a window deeper than the run."""
    if is_source(lists.from_):
        return
    retrieved = run_depth(ctx, lists.split, data)
    depth = find_depth_key(ctx, lists.split, data)
    looked_at = {f"{place}.depth": _deepest(lists)}
    if lists.behind is not None:
        looked_at[f"{place}.behind.depth"] = lists.behind.depth
    for key, deepest in looked_at.items():
        if deepest > retrieved:
            raise UserError(
                f"{at}.{key} is {deepest}, but {lists.from_} retrieves only {retrieved} passages per training "
                f"query; raise depth.{depth} (depth: {{{depth}: {deepest}}}) or lower {key}"
            )


def _check_size(at: str, place: str, available: int, size: int) -> None:
    """Refuse lists that are longer than the number of negatives that their runs offer."""
    if size - 1 > available:
        raise UserError(
            f"{at}.train.list_size is {size}, but its {place} give at most {available} negatives per query; "
            f"raise {place}.depth (and {place}.negatives) or lower train.list_size"
        )


def _deepest(lists: Candidates) -> int:
    """Return the last rank that may be drawn from."""
    backfill = lists.denoise.backfill if lists.denoise else None
    return max(lists.depth, backfill.depth) if backfill else lists.depth


def training_lists(ctx: Context, at: str, lists: Candidates, data: str) -> dict[str, Stage]:
    """Plan the lists that a model is trained on, by role: `candidates`, and `candidates.1`, … for joined ones."""
    upstream = {"candidates": _draw(ctx, f"{at}.candidates", lists, data)}
    for number, more in enumerate(lists.also):
        upstream[f"candidates.{number + 1}"] = _draw(
            ctx, f"{at}.candidates.also.{number}", more, data
        )
    return upstream


def _draw(ctx: Context, at: str, lists: Candidates, data: str) -> Stage:
    """Plan the stage that draws training lists; `at` is their path in the configuration."""
    require_split(ctx, data, lists.split, f"{at}: draws lists")
    inputs = plan_references(ctx, lists, at, Scope(data, lists.split))
    upstream: dict[str, Stage | None] = {"dataset": dataset(ctx, data), **inputs}
    upstream["tokens"] = tokens(ctx, ctx.settings.encoder, data)

    params = json_of(lists) | {"seed": ctx.seed(lists.seed)}
    if ctx.dataset_entry(data).ignore_identical_ids:
        params["ignore_identical_ids"] = True
        if lists.behind is not None:
            params["behind"]["of_results"] = True

    pool = inputs.get("run")
    if pool is not None:
        require_depth(pool, _deepest(lists), f"{at}.depth")
        if lists.behind is not None:
            require_depth(pool, lists.behind.depth, f"{at}.behind.depth")
        _check_scores(at, lists, pool)
        if lists.bar_answers or lists.labels == "answers":
            upstream["match"] = match_passages(ctx, "answers", pool, lists.split, data)
    elif lists.from_ != RANDOM:
        params["source"] = lists.from_

    if lists.denoise is not None and lists.denoise.calibrate:
        upstream["calibration"] = run(ctx, lists.from_, VALIDATED, f"{at}.denoise.calibrate", data)
    if lists.below_positive is not None:
        params["below_positive"]["judged"] = lists.below_positive.by is not None
    if "judge.0" in inputs:
        params |= ctx.scoring
    return ctx.stage("candidates", data, lists.from_, params, upstream)


@plans_reference("negatives")
def plan_pool(ctx: Context, name: Name, scope: Scope) -> dict[str, Stage]:
    """Plan the run that lists are drawn from; nothing for a registered source of negatives."""
    (source,) = name.names
    if isinstance(name.section, Candidates) and name.section.look_ahead:
        return plan_reference(ctx, name, scope, "look_ahead")
    if is_source(source):
        return {}
    sources = filter(is_source, negatives)
    return {name.role: run(ctx, source, scope.split, name.path, scope.dataset, also=sources)}
