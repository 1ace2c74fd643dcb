"""Register the observers of a dataset's texts during its stage, and the warnings of the stages that use it."""

from tandem.stages.data import DATASET_DOUBTS, DATASET_OBSERVERS

DATASET_OBSERVERS["own_passages"] = "contrib.collection_checks.text_observers:OwnPassagesObserver"
DATASET_OBSERVERS["texts"] = "contrib.collection_checks.text_observers:TextsObserver"
DATASET_DOUBTS["analysed"] = "contrib.collection_checks.doubts:list_misfits"
DATASET_DOUBTS["tokenised"] = "contrib.collection_checks.doubts:list_scripts"
DATASET_DOUBTS["scored"] = "contrib.collection_checks.doubts:list_own_passages"
