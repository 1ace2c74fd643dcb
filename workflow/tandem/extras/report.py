"""The command `report` with the sections of all extras."""

from tandem.extras import fidelity
from tandem.extras import sweep_page as sweeps
from tandem.extras.analysis import report as analysis
from tandem.extras.audits import report as audits
from tandem.report import report

EXTRAS = (sweeps.EXTRA, analysis.EXTRA, audits.EXTRA, fidelity.EXTRA)


def main(words: list[str]) -> int:
    """`report --tables a.csv,b.csv --rows JSON --out results/report.html [--audits JSON] [--validations JSON]
    [--sweeps JSON] [--analyses JSON]`.

    `--tables` are files of `tandem table`, `--rows` the systems that are compared, all scored on one dataset and split,
    `--audits` and `--analyses` manifests, `--validations` as `fidelity.read_curves` has them, `--sweeps` files of
    `tandem sweep`.
    """
    return report.main(words, EXTRAS)
