import bz2
import gzip
import json
import shutil
from collections import Counter
from hashlib import sha1

import pyarrow.parquet as pq
import pytest

from tandem.data.collection import Collection
from tandem.data.sources.dureader_retrieval import hash_words, name_training_query, read_ids
from tandem.errors import UserError

PARTS = [["天空是蓝色的", "水 是 湿的"], ["猫吃鱼", "狗吃肉", "天空是蓝色的"]]
IDS = [f"{number:032x}" for number in (7, 5, 3, 1, 9)]
DEV = [
    {"question_id": "d1", "question": "猫吃什么", "answer_paragraphs": [(2, "猫吃鱼")]},
    {"question_id": "d2", "question": "谁吃", "answer_paragraphs": [(3, "狗吃肉"), (2, "猫吃鱼")]},
]
DUAL = [
    ("天空颜色", "天空是蓝色的", "猫吃鱼"),
    ("水怎样", "水 是  湿的 ", "没有的文字"),
    ("天空颜色", "天空是蓝色的", "狗吃肉"),
]
CROSS = [
    ("水怎样", "猫吃鱼", 0),
    ("天空颜色", "猫吃鱼", 1),
    ("失传", "另一段没有的文字", 1),
    ("失传", "狗吃肉", 0),
]


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


@pytest.fixture
def package(tmp_path):
    """Five passages in two parts, the last repeats the first; three training queries, one without a positive."""
    folder = tmp_path / "package"
    for number, texts in enumerate(PARTS):
        write(
            folder / "passage-collection" / f"part-0{number}",
            [f"-\t-\t{text}\t0" for text in texts],
        )
    write_map(folder, dict(enumerate(IDS)))
    dev = [
        row
        | {
            "answer_paragraphs": [
                {"paragraph_id": IDS[i], "paragraph_text": t} for i, t in row["answer_paragraphs"]
            ]
        }
        for row in DEV
    ]
    write(folder / "dev" / "dev.json", [json.dumps(row, ensure_ascii=False) for row in dev])
    write(
        folder / "train" / "dual.train.tsv",
        ["\t".join((q, "", pos, "", neg, "0")) for q, pos, neg in DUAL],
    )
    write(
        folder / "train" / "cross.train.tsv",
        [f"{query}\t\t{text}\t{label}" for query, text, label in CROSS],
    )
    return folder


def write_map(folder, ids):
    (folder / "passage-collection" / "passage2id.map.json").write_text(json.dumps(ids))


def rows(artifact, name):
    return [tuple(row.values()) for row in pq.read_table(artifact.path(name)).to_pylist()]


def build(make, folder, name="d"):
    return make(name, {"source": "dureader_retrieval"}, path=str(folder))


def test_a_tiny_package_becomes_a_collection(package, make):
    dataset = build(make, package)
    texts = [text for part in PARTS for text in part]
    assert rows(dataset, "corpus.parquet") == [
        (doc, "", text) for doc, text in zip(IDS, texts, strict=True)
    ]
    sky, water = (
        f"train-{sha1(text.encode()).hexdigest()[:16]}" for text in ("天空颜色", "水怎样")
    )
    assert rows(dataset, "queries.parquet") == [
        ("d1", "猫吃什么", "dev"),
        ("d2", "谁吃", "dev"),
        (sky, "天空颜色", "train"),
        (water, "水怎样", "train"),
    ]
    # The cat is a negative of the sky in dual and a positive in cross: a positive. Of the two skies the first counts.
    assert rows(dataset, "qrels.parquet") == [
        ("d1", IDS[2], 1, "dev"),
        ("d2", IDS[3], 1, "dev"),
        ("d2", IDS[2], 1, "dev"),
        (sky, IDS[0], 1, "train"),
        (sky, IDS[2], 1, "train"),
        (water, IDS[1], 1, "train"),
    ]
    assert list(Collection(dataset).lists()) == [
        (sky, [(IDS[0], 1, None), (IDS[2], 1, None), (IDS[3], 0, None)]),
        (water, [(IDS[1], 1, None), (IDS[2], 0, None)]),
    ]
    assert dataset.manifest.facts["source"] == {
        "training_passages": 4,
        "training_passages_not_in_the_collection": 2,
        "training_pairs_of_both_labels": 1,
        "dev_passages_not_in_the_collection": 0,
    }
    assert dataset.manifest.facts["warnings"] == [
        "1 queries stand in no qrels and were dropped",
        "1 rows of training lists name documents or queries that are not kept and were dropped",
    ]


def test_keys_in_any_order_and_packed_files_give_the_same_bytes(package, make):
    plain = build(make, package, "plain")
    write_map(package, {number: IDS[number] for number in (3, 0, 4, 1, 2)})
    for path in [
        *package.glob("train/*"),
        *package.glob("passage-collection/*"),
        package / "dev" / "dev.json",
    ]:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    packed = build(make, package, "packed")
    assert packed.manifest.files == plain.manifest.files
    assert packed.manifest.facts["source"] == plain.manifest.facts["source"]


def test_plain_parts_are_read_where_packed_copies_lie_beside_them(package, make):
    plain = build(make, package, "plain")
    for path in list(package.glob("passage-collection/part-*")):
        for end, pack in ((".gz", gzip.compress), (".bz2", bz2.compress)):
            path.with_name(f"{path.name}{end}").write_bytes(pack(path.read_bytes()))
    both = build(make, package, "both")
    assert both.manifest.files == plain.manifest.files


def test_lines_may_have_a_title_or_be_the_text_alone(package, make):
    write(package / "passage-collection" / "part-00", ["-\t天\t天空是蓝色的\t0", "水 是 湿的"])
    dataset = build(make, package)
    assert [row[1:] for row in rows(dataset, "corpus.parquet")][:2] == [
        ("天", "天空是蓝色的"),
        ("", "水 是 湿的"),
    ]


def test_without_training_files_there_is_a_dev_split(package, make):
    shutil.rmtree(package / "train")
    dataset = build(make, package)
    assert dataset.manifest.facts["queries"] == {"dev": 2}
    assert "lists.parquet" not in dataset.manifest.files


def test_a_map_is_read_in_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr("tandem.data.sources.dureader_retrieval.IDS_PER_CHUNK", 7)
    path = tmp_path / "map.json"
    path.write_text(json.dumps({str(99 - number): f"p{99 - number}" for number in range(100)}))
    assert read_ids(path).to_pylist() == [f"p{number}" for number in range(100)]


def test_texts_have_the_first_row_with_the_same_words():
    collection = hash_words(f"text  {number % 10}" for number in range(25))
    assert collection.rows(hash_words(["text 7 ", "text 11", "text 0", "text 7"])).tolist() == [
        7,
        -1,
        0,
        7,
    ]
    assert collection.rows(hash_words([])).tolist() == []


def change_map(ids):
    return lambda folder: write_map(folder, ids)


def change(name, text):
    return lambda folder: (folder / name).write_text(text, encoding="utf-8")


MAP = "passage-collection/passage2id.map.json"
BAD = {
    "map of another order": (
        change_map(dict(enumerate([*IDS[2:], *IDS[:2]]))),
        MAP + ": gives another id to 3 of 3 passages of",
    ),
    "map too short": (
        change_map(dict(enumerate(IDS[:4]))),
        MAP + ": names 4 lines, but the 2 parts beside it have 5",
    ),
    "part missing": (
        lambda folder: (folder / "passage-collection" / "part-01").unlink(),
        "names 5 lines, but the 1 ",
    ),
    "line twice": (
        change(MAP, '{"0": "a", "2": "c", "1": "b", "2": "d"}'),
        MAP + ": names line 2 twice; all lines",
    ),
    "line left out": (
        change(MAP, '{"0": "a", "2": "b"}'),
        MAP + ": names line 2 but not line 1; all lines from 0",
    ),
    "key": (
        change(MAP, '{"one": "a"}'),
        MAP + ": a line number is 'one'; a whole number is needed",
    ),
    "negative key": (
        change(MAP, '{"-1": "a"}'),
        MAP + ": a line number is '-1'; numbers from 0 are allowed",
    ),
    "huge key": (change(MAP, '{"' + "9" * 30 + '": "a"}'), ": a line number is 9999999999"),
    "id": (change(MAP, '{"0": 5}'), MAP + ": the id of line 0 is 5; a text is needed"),
    "truncated map": (change(MAP, '{"0": "a", "1"'), MAP + ": broken or truncated ("),
    "list": (change(MAP, '["a"]'), MAP + ": names 0 lines, but the 2 parts"),
    "id again": (
        change_map(dict(enumerate([*IDS[:4], IDS[0]]))),
        f"part-*:5: document id {IDS[0]!r} again, first at 1",
    ),
    "columns": (
        change("passage-collection/part-01", "a\tb\n"),
        "part-01:1: 2 columns by tabs; a line is the text, or",
    ),
    "label": (
        change("train/cross.train.tsv", "q\t\tp\t2\n"),
        "cross.train.tsv:1: label is '2'; 0 and 1 are allowed",
    ),
    "dual": (
        change("train/dual.train.tsv", "q\t\tp\t0\n"),
        "dual.train.tsv:1: 4 columns by tabs; a line is query, ",
    ),
    "dev": (
        change("dev/dev.json", '{"question_id": 1}\n'),
        "dev.json:1: answer_paragraphs is not a list of objects",
    ),
    "no map": (
        lambda folder: (folder / MAP).unlink(),
        "holds no passage-collection/passage2id.map.json",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_and_leaves_nothing(name, package, make, tmp_path):
    change, message = BAD[name]
    change(package)
    with pytest.raises(UserError) as error:
        build(make, package)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert not [path for path in (tmp_path / "results").rglob("*") if path.is_file()]


def test_truncated_gzip_of_the_map_is_one_line(package, make):
    path = package / MAP
    (path.parent / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes())[:-12])
    path.unlink()
    with pytest.raises(
        UserError, match=r"passage2id.map.json.gz: broken or truncated \(.*\); fetch it again$"
    ):
        build(make, package)


def test_released_training_lines_are_found_in_a_collection_of_their_passages(package, make, real):
    samples = real("rocketqa-samples")
    pairs = []
    for name in ("dual", "cross"):
        shutil.copyfile(samples / f"{name}.train.tsv", package / "train" / f"{name}.train.tsv")
        for line in (samples / f"{name}.train.tsv").read_text(encoding="utf-8").split("\n")[:-1]:
            query, *columns = line.split("\t")
            labelled = (
                [(columns[1], 1), (columns[3], 0)]
                if name == "dual"
                else [(columns[1], int(columns[2]))]
            )
            pairs += [(query, text, label) for text, label in labelled]
    texts = list(dict.fromkeys(text for _, text, _ in pairs))
    assert len(texts) == 133
    write(package / "passage-collection" / "part-02", [f"-\t-\t{text}\t0" for text in texts[:-1]])
    write_map(package, dict(enumerate([*IDS, *(f"p{number}" for number in range(132))])))
    dataset = build(make, package)
    assert dataset.manifest.facts["source"]["training_passages"] == 132
    assert dataset.manifest.facts["source"]["training_passages_not_in_the_collection"] == 1
    assert dataset.manifest.facts["queries"] == {"train": 8, "dev": 2}
    expected = {
        (name_training_query(query), f"p{texts.index(text)}"): 0
        for query, text, _ in pairs
        if text != texts[-1]
    }
    for query, text, label in pairs:
        if label and text != texts[-1]:
            expected[name_training_query(query), f"p{texts.index(text)}"] = 1
    labels = {
        (query, doc): label
        for query, group in Collection(dataset).lists()
        for doc, label, _ in group
    }
    assert labels == expected
    assert Counter(labels.values())[1] == dataset.manifest.facts["qrels"]["train"]
    assert dataset.manifest.facts["source"]["training_pairs_of_both_labels"] == 2
