"""Sources of datasets, the models of their entries, and passages' domains; their readers are imported when needed."""

from tandem.config.datasets import register_source
from tandem.contrib.formats.options import (
    Beir,
    CMedQA2,
    CroppedSentences,
    Deb822,
    Domains,
    Dpr,
    DuReader2,
    EntityQuestions,
    Files,
    IrDatasets,
    Joined,
    Kilt,
    Lotte,
    Pair,
    RocketQATsv,
    Squad,
    TrainingLists,
    UnionDataset,
    Unlabelled,
)
from tandem.stages.data import DATASET_PARTS

register_source(
    Beir,
    CMedQA2,
    CroppedSentences,
    Deb822,
    Domains,
    Dpr,
    DuReader2,
    EntityQuestions,
    Files,
    IrDatasets,
    Joined,
    Kilt,
    Lotte,
    Pair,
    RocketQATsv,
    Squad,
    TrainingLists,
    UnionDataset,
    Unlabelled,
)
DATASET_PARTS["domains"] = "contrib.formats.passage_domains:write_domains"
