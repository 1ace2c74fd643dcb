"""Datasets of sources `windows` and `unlabelled`: what they take over from the one they are of, and mistakes."""

from typing import Any

from tandem.data.text import UNITS
from tandem.errors import UserError
from tandem.planning.schema import nearest, shown

INHERITED = ("language", "analyzer", "relevance", "match", "score_split")  # null: that of the documents
INHERITING = ("windows", "unlabelled")
UNSPACED = ("zh", "ja", "th", "lo", "km", "my")  # languages written without spaces


def complete_windows(datasets: dict[str, Any]) -> list[str]:
    """Fill in what datasets of these sources leave to others; one line per mistake."""
    wrong: list[str] = []
    for name, spec in datasets.items():
        if spec["source"] in INHERITING:
            try:
                _complete(name, spec, datasets)
            except UserError as error:
                wrong.append(str(error))
    return wrong


def _complete(name: str, spec: dict[str, Any], datasets: dict[str, Any]) -> None:
    """The same for one of them; a `UserError` if it cannot be made."""
    documents = _documents(name, datasets)
    for key in INHERITED:
        spec[key] = documents.get(key) if spec[key] is None else spec[key]
    if spec["source"] == "unlabelled":
        if "measures" in documents:
            spec.setdefault("measures", documents["measures"])
        return
    spec["unit"] = spec["unit"] or UNITS[spec["language"] in UNSPACED]
    if spec["stride"] > spec["length"]:
        skipped = f"datasets.{name}.stride is {spec['stride']}, which skips {spec['unit']} between windows of length"
        raise UserError(f"{skipped} {spec['length']}; allowed: ≤ {spec['length']}")


def _documents(name: str, datasets: dict[str, Any]) -> dict[str, Any]:
    """The entry of what a dataset is made of, windows of windows included."""
    opened, spec = [name], datasets[name]
    while spec["source"] in INHERITING:
        of = spec.get("of")
        if of not in datasets:
            raise UserError(
                f"datasets.{opened[-1]}.of is {shown(of)}, which is no dataset{nearest(str(of), list(datasets))}"
            )
        if of in opened:
            raise UserError(f"datasets form a cycle: {' -> '.join([*opened, of])}")
        opened.append(of)
        spec = datasets[of]
    return dict(spec)
