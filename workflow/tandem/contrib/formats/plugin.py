"""Sources of datasets and the models of their entries; what reads them is imported when it is needed."""

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
)

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
)
