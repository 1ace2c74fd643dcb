"""The command `report` with the sections of all extras."""

from tandem.extras import fidelity
from tandem.extras.analysis import report as analysis
from tandem.extras.audits import report as audits
from tandem.extras.sweeps import page as sweeps
from tandem.report import report

EXTRAS = (sweeps.EXTRA, analysis.EXTRA, audits.EXTRA, fidelity.EXTRA)


def main(words: list[str]) -> int:
    """`report --tables a.csv,b.csv --rows JSON --out results/report.html [--audits JSON] [--validations JSON]
    [--sweeps JSON] [--analyses JSON]`.

    `--tables` are files that `tandem table` wrote; `--rows` lists the systems that are compared, all scored on one
    dataset and split; `--audits` lists manifests of audits whose sections the page has too, `--validations` the
    checkpoints and their values (see `fidelity.read_curves`), `--sweeps` files that `tandem sweep` wrote, `--analyses`
    manifests of error analyses.
    """
    return report.main(words, EXTRAS)
