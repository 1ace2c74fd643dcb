"""Annotators' packages and their review, as a folder that people work in.

DuReader-retrieval A.3: pairs of a query and a pooled passage are divided into packages; annotators judge every pair of
a package; at least two reviewers each judge 100 random pairs of it independently; a package whose accuracy is below
93 %, on average over its reviewers, is revised and reviewed again. Accuracy is the share of a reviewer's pairs with the
same verdict.

    annotation/
      annotation.json                     which pool and which rule
      packages/001.csv, 001.html          an annotator fills in the column `verdict` of every row
      submitted/001.round1.csv            those verdicts as they went to review; nobody edits this
      reviews/001.round1.reviewer2.csv    a reviewer's draw, without the annotator's verdicts; with a page
      report.csv                          the state of each package

All state is in these files: `tandem annotate` may be called at any time, and writes what comes next.
"""

from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ValidationError

from tandem.contrib.audits.agreement import Agreement, measure_agreement
from tandem.contrib.audits.options import RULE_FILE, FalseNegativesParams, Review
from tandem.contrib.audits.sheets import (
    LABELLED_COLUMNS,
    REVIEW_COLUMNS,
    Pair,
    SheetRow,
    read_sheet_rows,
    read_verdicts,
    write_sheet_files,
)
from tandem.errors import UserError
from tandem.extras.spreadsheets import write_sheet
from tandem.store.artifact import Artifact
from tandem.store.files import replacing, write_text

_SUBMITTED_COLUMNS = ("query_id", "doc_id", "verdict")
Verdicts = dict[Pair, bool]


class AnnotationRule(BaseModel):
    """The rule that a folder was begun with: its pool, how it is reviewed, and the seed of the reviewers' draws."""

    pool: str
    review: Review
    seed: int


class PackageReview(BaseModel):
    """The state of a package."""

    pairs: int
    answered: int  # number of pairs judged by the annotator
    round: int  # number of the last review; 0 before the first
    # accuracy by each of the last round's reviewers, in percent; None if not finished
    reviewers: list[float | None]
    percent: float | None  # their mean, once all have finished
    accepted: bool
    state: str  # what it waits for


class ReviewSummary(BaseModel):
    """The result of a review: every package, and how reviewers and annotators agree in the last rounds."""

    rule: Review
    packages: dict[str, PackageReview]
    is_met: bool  # whether all packages have passed
    agreement: dict[str, Agreement]  # by the kind of pairs

    @property
    def accepted(self) -> int:
        """Return the number of packages that have passed."""
        return sum(package.accepted for package in self.packages.values())


@dataclass(frozen=True)
class Round:
    """One review of a package: the annotator's submitted verdicts, and each reviewer's verdicts so far."""

    number: int
    submitted: Verdicts
    draws: list[list[Pair]]
    reviews: list[Verdicts]

    @property
    def is_finished(self) -> bool:
        """Return whether all reviewers have judged all of their pairs."""
        return all(
            len(review) == len(draw) for review, draw in zip(self.reviews, self.draws, strict=True)
        )

    @property
    def accuracies(self) -> list[Fraction | None]:
        """Return, per reviewer, the share of pairs with the annotator's verdict; None while pairs are left."""
        shares: list[Fraction | None] = []
        for review, draw in zip(self.reviews, self.draws, strict=True):
            same = sum(verdict == self.submitted[pair] for pair, verdict in review.items())
            shares.append(Fraction(same, len(draw)) if len(review) == len(draw) else None)
        return shares

    @property
    def accuracy(self) -> Fraction | None:
        """Return the mean accuracy; None before all have finished."""
        known = [share for share in self.accuracies if share is not None]
        return sum(known, Fraction(0)) / len(known) if len(known) == len(self.draws) else None


class AnnotationFolder:
    """The folder in which annotators and reviewers of a pool work.

    Args:
        folder: `annotation/`, as drawn at the head of this file.
        pool: an artifact of `false_negatives` with `labelled: true`.
        rule: how packages are cut and reviewed.
    """

    def __init__(self, folder: Path, pool: Artifact, rule: AnnotationRule) -> None:
        if not pool.params_as(FalseNegativesParams).labelled:
            problem = f"{pool.folder}: its sheet has unlabelled passages alone"
            raise UserError(
                f"{problem}; set audits.false_negatives.labelled: true to have labels corrected"
            )
        self.folder = folder
        self.rule = rule
        self.packages = cut_packages(read_sheet_rows(pool.path("sheet.csv")), rule.review.package)
        if not self.packages:
            raise UserError(f"{pool.folder}: nothing is asked about; there is nothing to annotate")

    def write_missing(self) -> None:
        """Write whatever comes next and does not exist: packages, and reviews of filled packages."""
        write_text(self.folder / RULE_FILE, self.rule.model_dump_json(indent=1) + "\n")
        for name, rows in self.packages.items():
            self._write_sheet(self.path_of_package(name), rows, LABELLED_COLUMNS)
            for number in range(1, self.count_rounds(name) + 1):
                self._write_reviews(name, number)
            rounds = self.read_rounds(name)
            annotated = self.read_package(name)
            if len(annotated) == len(rows) and self._wants_review(rounds, annotated):
                # The file that begins a round is written last, so that a call after a killed one begins it again.
                self._write_reviews(name, len(rounds) + 1)
                self._submit(name, len(rounds) + 1, annotated)

    def _wants_review(self, rounds: list[Round], annotated: Verdicts) -> bool:
        """Return whether a filled package is new, or was revised after a review that it did not pass."""
        if not rounds:
            return True
        last = rounds[-1]
        return last.is_finished and not self.has_passed(last) and annotated != last.submitted

    def has_passed(self, review: Round) -> bool:
        """Return whether the mean accuracy is at least the rule's."""
        return review.accuracy is not None and review.accuracy >= Fraction(
            str(self.rule.review.accuracy)
        )

    def _write_reviews(self, name: str, number: int) -> None:
        rows = {(row.query_id, row.doc_id): row for row in self.packages[name]}
        for reviewer in range(1, self.rule.review.reviewers + 1):
            # Neither labels nor scores are shown, so that a reviewer decides independently.
            drawn = [
                rows[pair]._replace(score="", rank="", label="")
                for pair in self.draw(name, number, reviewer)
            ]
            self._write_sheet(self.path_of_review(name, number, reviewer), drawn, REVIEW_COLUMNS)

    def _submit(self, name: str, number: int, annotated: Verdicts) -> None:
        lines = [[query, doc, int(verdict)] for (query, doc), verdict in annotated.items()]
        path = self.path_of_submitted(name, number)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial:
            write_sheet(partial, _SUBMITTED_COLUMNS, lines)

    def _write_sheet(self, path: Path, rows: list[SheetRow], columns: tuple[str, ...]) -> None:
        """Write a sheet and its page, unless the sheet exists: somebody may have begun to fill it in."""
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            key = f"{self.rule.pool}.{path.stem}"
            with replacing(path) as partial:
                write_sheet_files(partial, path.with_suffix(".html"), rows, columns, key)

    def path_of_package(self, name: str) -> Path:
        """Return the path of the annotator's sheet."""
        return self.folder / "packages" / f"{name}.csv"

    def path_of_submitted(self, name: str, number: int) -> Path:
        """Return the path of the verdicts that went to review in a round."""
        return self.folder / "submitted" / f"{name}.round{number}.csv"

    def path_of_review(self, name: str, number: int, reviewer: int) -> Path:
        """Return the path of a reviewer's sheet of a round."""
        return self.folder / "reviews" / f"{name}.round{number}.reviewer{reviewer}.csv"

    def _name_file(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()

    def draw(self, name: str, number: int, reviewer: int) -> list[Pair]:
        """Return the pairs for a reviewer to judge in a round, in order; every set of the rule's size is as likely."""
        rows = self.packages[name]
        generator = np.random.default_rng([self.rule.seed, int(name), number, reviewer])
        count = min(self.rule.review.pairs, len(rows))
        chosen = sorted(generator.choice(len(rows), count, replace=False).tolist())
        return [(rows[at].query_id, rows[at].doc_id) for at in chosen]

    def read_package(self, name: str) -> Verdicts:
        """Return the annotator's verdicts so far, in the sheet's order."""
        pairs = [(row.query_id, row.doc_id) for row in self.packages[name]]
        return read_people_verdicts(self.path_of_package(name), pairs)

    def count_rounds(self, name: str) -> int:
        """Return how often a package went to review."""
        number = 0
        while self.path_of_submitted(name, number + 1).is_file():
            number += 1
        return number

    def read_rounds(self, name: str) -> list[Round]:
        """Return all reviews of a package, first to last."""
        rounds: list[Round] = []
        pairs = [(row.query_id, row.doc_id) for row in self.packages[name]]
        for number in range(1, self.count_rounds(name) + 1):
            path = self.path_of_submitted(name, number)
            submitted = read_people_verdicts(path, pairs)
            if len(submitted) < len(pairs):
                raise UserError(
                    f"{path}: has {len(submitted):,} of {len(pairs):,} verdicts; restore it, or remove it"
                )
            draws, reviews = [], []
            for reviewer in range(1, self.rule.review.reviewers + 1):
                draws.append(self.draw(name, number, reviewer))
                reviews.append(
                    read_people_verdicts(self.path_of_review(name, number, reviewer), draws[-1])
                )
            rounds.append(Round(number, submitted, draws, reviews))
        return rounds

    def describe(self, name: str, rounds: list[Round]) -> PackageReview:
        """Return the state of a package."""
        last = rounds[-1] if rounds else None
        shares = last.accuracies if last else []
        accuracy = last.accuracy if last else None
        accepted = last is not None and self.has_passed(last)
        if accepted:
            state = "passed"
        elif last is None:
            state = f"to be annotated: {self._name_file(self.path_of_package(name))}"
        elif not last.is_finished:
            waiting = [at for at, share in enumerate(shares, start=1) if share is None]
            files = [self._name_file(self.path_of_review(name, last.number, at)) for at in waiting]
            state = f"to be reviewed: {', '.join(files)}"
        else:
            state = f"to be revised: {self._name_file(self.path_of_package(name))}"
        return PackageReview(
            pairs=len(self.packages[name]),
            answered=len(self.read_package(name)),
            round=len(rounds),
            reviewers=[None if share is None else round(100 * float(share), 2) for share in shares],
            percent=None if accuracy is None else round(100 * float(accuracy), 2),
            accepted=accepted,
            state=state,
        )

    def summarise(self) -> tuple[Verdicts, ReviewSummary]:
        """Return the verdicts of the packages that have passed, and the state of all packages."""
        verdicts: Verdicts = {}
        packages: dict[str, PackageReview] = {}
        both: list[tuple[int, int]] = []  # the annotator's verdict and the reviewer's
        for name in self.packages:
            rounds = self.read_rounds(name)
            packages[name] = self.describe(name, rounds)
            if rounds:
                last = rounds[-1]
                for review in last.reviews:
                    both += [
                        (int(last.submitted[pair]), int(verdict))
                        for pair, verdict in review.items()
                    ]
                if packages[name].accepted:
                    verdicts |= last.submitted
        return verdicts, ReviewSummary(
            rule=self.rule.review,
            packages=packages,
            is_met=all(package.accepted for package in packages.values()),
            agreement={"reviewed": measure_agreement(both, 2)},
        )


def cut_packages(rows: list[SheetRow], most: int) -> dict[str, list[SheetRow]]:
    """Return packages of at most `most` rows by their names `001`, …; rows of a query stay together if they fit."""
    packages: list[list[SheetRow]] = [[]]
    for _, group in groupby(rows, key=lambda row: row.query_id):
        own = list(group)
        if packages[-1] and len(packages[-1]) + len(own) > most:
            packages.append([])
        for row in own:
            if len(packages[-1]) == most:
                packages.append([])
            packages[-1].append(row)
    return {f"{number:03}": package for number, package in enumerate(packages, start=1) if package}


def read_people_verdicts(path: Path, pairs: list[Pair]) -> Verdicts:
    """Return the verdicts of a sheet about some pairs, in their order; none of them may be a language model's.

    Raises:
        UserError: no sheet, or in it an invalid verdict, one on another pair or by a model, or two that differ.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file; `tandem annotate` writes it anew, empty")
    known = set(pairs)

    def require_known(where: str, query: str, doc: str) -> None:
        if (query, doc) not in known:
            problem = f"{where}: {doc} for query {query} is not a pair of this sheet"
            raise UserError(f"{problem}; ids must stay as they were, and each sheet keeps its name")

    verdicts, machine_made = read_verdicts(path, require_known)
    if machine_made:
        query, doc = min(machine_made)
        raise UserError(
            f"{path}: filled_by names a model for {doc} of query {query}; people decide here, leave it empty"
        )
    return {pair: verdicts[pair] for pair in pairs if pair in verdicts}


def read_rule(folder: Path, pool: Artifact) -> AnnotationRule:
    """Return the rule that a folder was begun with; a `UserError` if it was not begun, or for another pool."""
    path = folder / RULE_FILE
    if not path.is_file():
        raise UserError(f"{path}: no such file; `tandem annotate` begins a folder of packages")
    try:
        rule = AnnotationRule.model_validate_json(path.read_bytes())
    except ValidationError:
        raise UserError(f"{path}: not a rule that `tandem annotate` wrote; restore it") from None
    if rule.pool != pool.key:
        raise UserError(
            f"{folder}: its packages are of the pool {rule.pool}, not of {pool.key}; name another folder"
        )
    return rule


def read_accepted(folder: Path, pool: Artifact) -> tuple[Verdicts, ReviewSummary]:
    """Return the verdicts of the packages that have passed their review, and the state of all packages.

    Raises:
        UserError: no package has passed, or a file of the folder is broken.
    """
    verdicts, summary = AnnotationFolder(folder, pool, read_rule(folder, pool)).summarise()
    if not verdicts:
        states = "; ".join(
            f"{name} {package.state}" for name, package in list(summary.packages.items())[:3]
        )
        raise UserError(
            f"{folder}: none of {len(summary.packages):,} packages has passed its review ({states})"
        )
    return verdicts, summary
