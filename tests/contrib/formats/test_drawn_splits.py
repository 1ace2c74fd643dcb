"""Splits that are drawn from queries which the hash of their ids has chosen: planning says that these are counted."""

from tiny_project import write_qrels_folder

PARTS = {"source": "domains", "only": ["x"]}
MORE = {"source": "unlabelled", "share": 0.4}
SENTENCES = {"source": "cropped_sentences"}
BOTH = {"source": "union"}
DEV = {"dev_from_train": 0.1}
TRAIN = {"train_from_test": 0.5}
# entries, and which of their shares are counted
COUNTED = [
    (PARTS | {"of": "whole"} | DEV, None),
    (PARTS | {"of": "few_tested"} | DEV, None),
    (PARTS | {"of": "few"} | DEV, ["dev_from_train"]),
    (PARTS | {"of": "few_tested"} | TRAIN, ["train_from_test"]),
    (PARTS | {"of": "part_of_few"} | DEV, ["dev_from_train"]),
    (MORE | {"of": "whole"} | DEV, ["dev_from_train"]),
    (MORE | {"of": "few"}, None),
    # its queries are not those of the other
    (SENTENCES | {"of": "few"} | DEV, None),
    (SENTENCES | {"of": "whole", "most": 9} | DEV, ["dev_from_train"]),
    # its ids, and so their hashes, are others
    (BOTH | {"of": ["few", "whole"]} | DEV, None),
]


def test_shares_of_queries_that_were_chosen_are_counted(tmp_path, plan_of):
    folder = write_qrels_folder(tmp_path, "whole", ["train", "test"])
    whole = {"source": "beir", "path": folder, "dev_from_train": None}
    bases = {
        "whole": whole,
        "few": whole | {"train_queries": 9},
        "few_tested": whole | {"test_queries": 9},
        "part_of_few": PARTS | {"of": "few"},
    }
    derived = {f"derived{number}": entry for number, (entry, _) in enumerate(COUNTED)}
    planner = plan_of(bases | derived, "whole").planner
    values = [planner.dataset(name).values.get("counted_shares") for name in derived]
    assert values == [counted for _, counted in COUNTED]
