"""The command `annotate`: what annotators and reviewers of a pool fill in next, and whether the rule is met."""

from pathlib import Path

from tandem.contrib.audits.findings import tabulate_packages
from tandem.contrib.audits.options import RULE_FILE
from tandem.contrib.audits.packages import AnnotationFolder, AnnotationRule, read_rule
from tandem.contrib.audits.plan import plan_pool, read_settings
from tandem.errors import UserError
from tandem.extras.targets import Configurations, choose_configuration
from tandem.report.grids import align_text
from tandem.store.artifact import open_artifact
from tandem.store.files import csv_text, write_text


def annotate(*, configurations: Configurations = (), folder: Path | None = None) -> None:
    """Write what annotators and reviewers of a pool fill in next, and report the state of each package.

    The pool's pairs are divided into packages (`audits.false_negatives.review`). Call it again whenever somebody has
    filled something in: a filled package goes to review, and a package that has not passed goes to review again once it
    is revised. `audits.false_negatives.sheet: FOLDER` then takes the labels of the packages that have passed.

    Args:
        folder: where people work; default: `audits.false_negatives.sheet`, else annotation.
    """
    configuration = choose_configuration(configurations, [], "annotated")
    plan = configuration.plan()
    ctx = plan.planner.ctx
    entry = read_settings(ctx).false_negatives
    folder = folder or Path(entry.sheet or "annotation")
    stage = plan_pool(ctx, plan.settings.dataset)
    if not Path(stage.manifest).is_file():
        raise UserError(
            f"{stage.folder}: is not made; run: {configuration.snakemake([stage.manifest])}"
        )
    if folder.is_file():
        raise UserError(f"{folder}: is a file; packages need a folder, name it with --folder")

    pool = open_artifact(Path(stage.folder))
    rule = AnnotationRule(pool=pool.key, review=entry.review, seed=plan.settings.seed)
    if (folder / RULE_FILE).is_file():
        _require_same_rule(folder, read_rule(folder, pool), rule)
    folder.mkdir(parents=True, exist_ok=True)
    work = AnnotationFolder(folder, pool, rule)
    work.write_missing()

    _, summary = work.summarise()
    grid = tabulate_packages(summary)
    write_text(folder / "report.csv", csv_text(grid.head, grid.rows))
    print(align_text(grid))


def _require_same_rule(folder: Path, begun: AnnotationRule, rule: AnnotationRule) -> None:
    """Refuse to continue in a folder by another rule than it was begun with."""
    if begun == rule:
        return
    differing = [
        f"{key} {value}" for key, value in begun.review if getattr(rule.review, key) != value
    ]
    if begun.seed != rule.seed:
        differing.append(f"seed {begun.seed}")
    raise UserError(
        f"{folder}: was begun with {', '.join(differing)}; keep to it, or name another folder"
    )
