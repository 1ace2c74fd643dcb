"""What may be wrong with an entry of `fusions:`, found before anything is planned with it."""

from math import comb, isclose, isfinite
from typing import TYPE_CHECKING, Any

from tandem.errors import UserError
from tandem.planning.fused import METHODS
from tandem.planning.origins import NAME

if TYPE_CHECKING:
    from tandem.planning.resolver import Resolver

MOST = 1001  # settings that are tried: five runs in steps of 0.1
RUNS = ("models", "runs", "ensembles", "aggregations", "sparse")  # where the configuration names what else a run may be


def check(of: "Resolver", name: str) -> None:
    """Refuse an entry that makes no sense, wanted or not.

    Raises:
        UserError: a name that is taken, runs that are too few or not there, weights or steps that do not fit, or
            tuning by a measure that looks deeper than the runs go.
    """
    told, at, dataset = of.config["fusions"][name], f"fusions.{name}", of.config["dataset"]
    taken = any(name in of.config[key] for key in RUNS) or of.named(name) in of.config["models"]
    if not NAME.fullmatch(name):
        raise UserError(f"{at}: a name is letters, digits, '_', '-' and '.'")
    if taken or name == "given" or name.split(".")[0] == "bm25":
        raise UserError(f"{at} has the name of another run or model; name it otherwise")
    if len(told["of"]) < 2:
        raise UserError(f"{at}.of is {told['of']}; two runs or more are fused")
    _check_weights(at, told)
    _check_runs(of, name)
    if told[METHODS[told["method"]].tuned] is None:
        of.fusions.tuning(name, dataset)


def _check_weights(at: str, told: dict[str, Any]) -> None:
    """Weights that are given, or the steps in which they are tuned."""
    weights, count, step = told["weights"], len(told["of"]), told["tune"]["step"]
    if told["method"] != "weighted":
        if weights is not None:
            raise UserError(f"{at}.weights is {weights}, but {told['method']} takes none; used by weighted")
        return
    if weights is not None:
        if len(weights) != count or not any(weights) or not all(map(isfinite, weights)):
            raise UserError(f"{at}.weights is {weights}; allowed: {count} numbers, one a run, not all 0")
        return
    parts = round(1 / step)
    if not isclose(parts * step, 1, rel_tol=1e-6):
        raise UserError(f"{at}.tune.step is {step}, which does not divide 1; allowed are 0.5, 0.25, 0.2, 0.1, …")
    if (points := comb(parts + count - 1, count - 1)) > MOST:
        found = f"{at}.tune.step is {step}, which makes {points:,} combinations of {count} weights"
        raise UserError(f"{found}; allowed: {MOST:,}; raise it, fuse fewer runs or set weights")


def _check_runs(of: "Resolver", name: str) -> None:
    """The runs must be there on one of the splits: a released run may have a file for a single one."""
    dataset, wrong = of.config["dataset"], []
    for split in (of.runs.split(dataset), "dev", "train"):
        try:
            of.fusions.parts(name, split, f"fusions.{name}.of", dataset)
            return
        except UserError as error:
            wrong.append(error)
    raise wrong[0]
