"""Options of released runs and of runs that stages of plugins write (`runs`), and the parameters of their stage."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from tandem.config.base import problem
from tandem.config.references import RunRef
from tandem.config.retrieval import OnSplits, Ties
from tandem.stages.base import Params, Planned


class ImportedRun(OnSplits):
    """A run that others released, or that a stage of your own writes: an entry of `runs`.

    In files of ranks and margin_mse, tabs separate columns. The former has query, passage, rank[, score]; the latter
    has two scores, query, positive, negative.
    """

    paths: dict[str, str] = Field({}, description="split → file")
    stage: str | None = Field(
        None, description="instead of `paths`: a kind of stage of your own that writes a run"
    )
    of: RunRef | None = Field(
        None, description="of `stage`: the run that is its input `run`; null: none"
    )
    params: dict[str, Any] = Field(
        {}, description="of `stage`: its own parameters, in addition to `split` and `depth`"
    )
    format: Literal["trec", "ranks", "margin_mse"] = Field("trec", description="of the files")
    ties: Ties = Field(
        "doc_id", description="first of a tie: the lower id, or the higher one as in trec_eval"
    )

    @model_validator(mode="after")
    def _is_of_files_or_of_a_stage(self) -> Self:
        if not self.stage and not self.paths:
            raise problem(" has neither paths nor stage; say one of them")
        if self.stage:
            others, whose = {"paths", "format", "ties"}, "of files, but stage writes this run"
        else:
            others, whose = {"of", "params"}, "of a stage, but this run has files"
        for key in sorted(others):
            # A bundle's configuration has all keys, also those that nobody has set.
            if getattr(self, key) != type(self).model_fields[key].default:
                raise problem(f".{key} is {whose}; leave it out")
        return self

    def has_split(self, split: str) -> bool:
        """Return whether a stage writes it, or it has a file for the split."""
        return bool(self.stage) or split in self.paths


class ImportedParams(Params):
    """Parameters of a released run."""

    format: Literal["trec", "ranks", "margin_mse"] = Field("trec", description="of the file")
    ties: Ties = Field("doc_id", description="which of tied passages is first")
    split: str = Field("test", description="whose queries")
    depth: int = Field(1000, ge=1, description="passages kept per query")
    fingerprint: str | None = Field(None, description="of the file")


def has_ranks_alone(stage: Planned) -> bool:
    """Return whether a stage imports a file of ranks, whose scores are minus the ranks."""
    return bool(stage.values["format"] == "ranks")
