"""Lineage: every stage above a number once, inputs first, and the picture of it."""

import shutil

from tandem.extras.report.stage_graph import arrange_layers, draw_graph, list_direct_inputs
from tandem.extras.stage_tree import tree
from tandem.stages.base import flatten
from tandem.store.artifact import open_artifact
from tandem.store.lineage import stage_name, walk


def test_every_stage_above_once_and_inputs_first(artifact_of):
    stages = walk([artifact_of("RocketQAv2 (retriever)"), artifact_of("BM25")])
    keys = list(stages)
    assert all(
        keys.index(above) < keys.index(key)
        for key, stage in stages.items()
        for above in stage.upstream.values()
    )
    kinds = sorted(stage.kind for stage in stages.values())
    assert kinds == sorted(
        ["dataset", "encoder", "tokens", "lucene", "bm25", "candidates", "candidates"]
        + ["model"] * 4
        + ["embeddings"] * 4
        + ["retrieve"] * 2
        + ["score"] * 2
    )


def test_tree_spells_each_stage_out_once(artifact_of):
    score = artifact_of("CE w/ DE Neg", "DE w/ BM25 Neg")
    stages = walk([score])
    spelled, repeated = [], []

    def visit(node):
        (repeated if node.repeated else spelled).append(node.stage.key)
        for above in node.above:
            visit(above)

    visit(tree(stages, score.key))
    assert set(spelled) == set(stages)
    with_inputs = [key for key in spelled if stages[key].upstream]
    assert len(with_inputs) == len(set(with_inputs))
    assert set(repeated) <= set(with_inputs)


def test_moved_results_are_found_beside(empty_world, tmp_path):
    lower = empty_world.make("dataset", "d", {})
    upper = empty_world.make("lucene", "l", {}, dataset=lower)
    shutil.move(tmp_path / "results", tmp_path / "elsewhere")
    moved = open_artifact(tmp_path / "elsewhere/toy/lucene" / upper.key)
    assert [stage.artifact.folder for stage in walk([moved]).values()] == [
        tmp_path / "elsewhere/toy/dataset" / lower.key,
        moved.folder,
    ]


def test_leaves_and_names():
    assert flatten({"a": {"b": 1, "c": {}}, "d": [1]}) == {"a.b": 1, "a.c": {}, "d": [1]}
    assert stage_name("ce.w-x-0123456789") == "ce.w-x"


def test_picture_leaves_out_what_follows(empty_world):
    a = empty_world.make("dataset", "a", {})
    b = empty_world.make("lucene", "b", {}, dataset=a)
    c = empty_world.make("bm25", "<c>", {}, dataset=a, lucene=b)
    stages = walk([c])
    inputs = list_direct_inputs(stages)
    assert inputs == {a.key: [], b.key: [a.key], c.key: [b.key]}
    assert arrange_layers(inputs) == [[a.key], [b.key], [c.key]]
    picture = draw_graph(stages)
    assert picture.count("<line") == 2
    assert "&lt;c&gt;" in picture
    assert "<c>" not in picture
    assert f'href="#stage-{a.key}"' in picture
