"""The format `deb822`: small lists of apt's, made here, and a part of the real collection written as such lists."""

import bz2
import gzip
import lzma
from collections import Counter
from hashlib import md5
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tiny_project import ROOT

from tandem.contrib.formats.deb822 import Deb822Source, count_description_words
from tandem.data.collection import Collection
from tandem.data.reading import read_fields, read_records
from tandem.errors import UserError
from tandem.extras.listing import FolderListing
from tandem.plan.plan import Plan

OTTER = ["An otter is", "a  mammal that eats fish.", ".", "It swims."]
# Package → source, section, synopsis, lines of the description. Modulo 100 the sha256 of `toad` is 7 (test), of `crab`
# 10 (dev), of `otter` 53 and of `heron` 97 (train).
PACKAGES = {
    "toad": ("toad (1.2-3)", "games", "the common toad", ["A toad is an amphibian, mostly."]),
    "libotter2": ("otter", "libs", "shared library of otters", OTTER),
    "libotter1": ("otter", "oldlibs", "library of otters", OTTER),
    "otter-doc": (
        "otter",
        "contrib/doc",
        "documentation of otters",
        [*OTTER, "Here is its documentation."],
    ),
    "heron": ("", "science", "heron of the  river", ["A heron stands in", "water."]),
    "crab": ("crab", "games", "library of otters", ["A crab goes sideways there."]),
    "moss": ("moss", "games", "moss", ["The synopsis has one word."]),
    "rose": ("rose", "games", "a red rose", ["Thorns and a smell."]),
}
GERMAN = {
    "toad": "die Erdkröte",
    "libotter1": "Bibliothek der Otter",
    "libotter2": "gemeinsame Otterbibliothek",
    "crab": "Bibliothek der Otter",
    "heron": "Heron of the River",
    "otter-doc": "Doku",
}


def write_lists(folder, packages, german, pack=bytes, end=""):
    """Write lists as apt names them: Packages, which has synopses, and translations into English and German."""
    lists, english, translated = [], [], []
    for name, (source, section, synopsis, description) in packages.items():
        whole = "\n ".join([synopsis, *description])
        digest = md5(whole.encode()).hexdigest()
        record = [
            f"Package: {name}",
            "Tag: role::program,",
            " use::gameplaying",
            f"Description: {synopsis}",
        ]
        record += [
            f"Description-md5: {digest}",
            f"Section: {section}",
            *([f"Source: {source}"] if source else []),
        ]
        lists.append("\n".join(record) + "\n")
        key = f"Package: {name}\nDescription-md5: {digest}\n"
        english.append(f"{key}Description-en: {whole}\n")
        if name in german:
            translated.append(
                f"{key}Description-de: {german[name]}\n Ein Otter ist ein Tier.\n \xa0\n Er schwimmt.\n"
            )
    folder.mkdir(exist_ok=True)
    parts = {
        "binary-amd64_Packages": lists,
        "i18n_Translation-en": english,
        "i18n_Translation-de": translated,
    }
    for name, content in parts.items():
        path = folder / f"mirror_debian_dists_stable_main_{name}{end}"
        path.write_bytes(pack("\n".join(content).encode()))
    return str(folder)


@pytest.fixture
def lists(tmp_path):
    """`lists(pack, end)`: a folder of lists, packed, under names with that end."""
    return lambda *packing: write_lists(tmp_path / "lists", PACKAGES, GERMAN, *packing)


def qrels(artifact):
    collection = Collection(artifact)
    return {split: collection.qrels(split) for split in artifact.manifest.facts["qrels"]}


def test_descriptions_are_passages_and_synopses_queries(lists, make):
    dataset = make("debian", {"source": "deb822"}, path=lists())
    assert [
        tuple(row.values()) for row in pq.read_table(dataset.path("corpus.parquet")).to_pylist()
    ] == [
        ("crab", "", "A crab goes sideways there."),
        ("heron", "", "A heron stands in water."),
        ("libotter1", "", "An otter is a mammal that eats fish. It swims."),
        (
            "otter-doc",
            "",
            "An otter is a mammal that eats fish. It swims. Here is its documentation.",
        ),
        ("toad", "", "A toad is an amphibian, mostly."),
    ]
    # A crab has the synopsis of an otter: the source that is the first by name decides, `crab`.
    assert qrels(dataset) == {
        "train": {
            "q-heron": {"heron": 1},
            "q-libotter2": {"libotter1": 1},
            "q-otter-doc": {"otter-doc": 1},
        },
        "dev": {"q-crab": {"crab": 1, "libotter1": 1}},
        "test": {"q-toad": {"toad": 1}},
    }
    assert Collection(dataset).queries("train")["q-heron"] == "heron of the river"
    facts = dataset.manifest.facts["source"]
    assert (facts["packages"], facts["short_or_absent"], facts["of_equal_description"]) == (8, 2, 1)
    sections = [row["domain"] for row in pq.read_table(dataset.path("domains.parquet")).to_pylist()]
    assert sections == ["games", "science", "oldlibs", "doc", "games"]


def test_translated_synopses_ask_for_the_same_passages(lists, make):
    english = make("en", {"source": "deb822"}, path=lists())
    german = make("de", {"source": "deb822", "synopses": "de"}, path=lists())
    assert german.path("corpus.parquet").read_bytes() == english.path("corpus.parquet").read_bytes()
    # In the splits of the English ones. The heron's repeats the English, the documentation's is too short, and
    # libotter2 has the description of libotter1, whose synopsis counts.
    assert qrels(german) == {
        "dev": {"q-crab": {"crab": 1, "libotter1": 1}},
        "test": {"q-toad": {"toad": 1}},
    }
    assert Collection(german).queries("dev") == {"q-crab": "Bibliothek der Otter"}


def test_what_one_of_its_english_queries_is_trained_on_is_not_tested(tmp_path, make):
    # a test query, and a training query
    german = GERMAN | {"toad": "ein Tier", "otter-doc": "ein Tier"}
    dataset = make(
        "de",
        {"source": "deb822", "synopses": "de"},
        path=write_lists(tmp_path / "l", PACKAGES, german),
    )
    assert qrels(dataset)["train"] == {"q-otter-doc": {"otter-doc": 1, "toad": 1}}


def test_passages_of_another_language(lists, make):
    dataset = make("de", {"source": "deb822", "descriptions": "de", "synopses": "en"}, path=lists())
    assert [
        tuple(row.values()) for row in pq.read_table(dataset.path("corpus.parquet")).to_pylist()
    ] == [("crab", "", "Ein Otter ist ein Tier. Er schwimmt.")]
    assert len(Collection(dataset).queries("dev")) == 1


def test_words_of_a_language_without_spaces():
    assert count_description_words("川獺は動物です", "ja") == 3
    assert count_description_words("An otter is an animal", "en") == 5
    assert count_description_words("獺 動物", "zh_TW") == 2


@pytest.mark.parametrize(
    ("pack", "end"),
    [
        (gzip.compress, ".gz"),
        (lzma.compress, ".xz"),
        (bz2.compress, ".bz2"),
        (lambda data: pa.compress(data, "lz4", asbytes=True), ".lz4"),
        (lambda data: pa.compress(data, "zstd", asbytes=True), ".zst"),
    ],
)
def test_lists_packed_as_apt_has_them(lists, make, tmp_path, pack, end):
    plain = make(
        "plain", {"source": "deb822"}, path=write_lists(tmp_path / "plain", PACKAGES, GERMAN)
    )
    dataset = make("packed", {"source": "deb822"}, path=lists(pack, end))
    assert dataset.manifest.facts["checksum"] == plain.manifest.facts["checksum"]
    cut = write_lists(tmp_path / "cut", PACKAGES, GERMAN, lambda data: pack(data)[:-12], end)
    with pytest.raises(
        UserError, match=rf"_Packages\{end}: .* file is truncated after line \d+; fetch it again"
    ):
        make("cut", {"source": "deb822"}, path=cut)


def test_a_synopsis_of_more_than_ten_passages_is_no_query(tmp_path, make):
    def many(count):
        numbers = {
            f"p{number}": ("p", "games", "a  dummy", [f"This is the package number {number}"])
            for number in range(count)
        }
        return make(
            f"many{count}",
            {"source": "deb822"},
            path=write_lists(tmp_path / str(count), PACKAGES | numbers, {}),
        )

    assert len(qrels(many(10))["train"]["q-p0"]) == 10
    assert "q-p0" not in qrels(many(11))["train"]


def test_splits_may_be_chosen(lists, make):
    shares = {"dev": ["50-60"], "test": ["90-100", "0-11"]}
    dataset = make("debian", {"source": "deb822", "hash_splits": shares}, path=lists())
    assert {split: list(queries) for split, queries in qrels(dataset).items()} == {
        "dev": ["q-libotter2", "q-otter-doc"], "test": ["q-crab", "q-heron", "q-toad"],
    }  # fmt: skip


def test_of_several_lists_the_first_counts_and_a_pattern_chooses(lists, make, tmp_path):
    folder = lists()
    update = {
        "toad": ("apt", "kernel", "another synopsis", ["Another description of five words."]),
        "owl": PACKAGES["toad"],
    }
    write_lists(tmp_path / "more", update, {})
    for path in (tmp_path / "more").iterdir():
        path.rename(tmp_path / "lists" / path.name.replace("stable_", "stable-updates_"))
    every = make("every", {"source": "deb822"}, path=folder)
    assert every.manifest.facts["source"]["packages"] == 9
    stable = make("stable", {"source": "deb822", "lists": "*_dists_stable_*"}, path=folder)
    assert stable.manifest.facts["source"]["packages"] == 8
    assert (
        make("updates", {"source": "deb822", "lists": "*-updates_*"}, path=folder).manifest.facts[
            "passages"
        ]
        == 2
    )


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            {"synopses": "fr"},
            r"holds no \*Translation-fr, .*; apt-get update -o Acquire::Languages=en,fr brings it",
        ),
        ({"lists": "*_noble_*"}, r"holds no \*_noble_\*Packages"),
        (
            {"lists": "*_binary-*"},
            r"no package of the lists has a description; .*Acquire::Languages=en brings them",
        ),
    ],
)
def test_lists_that_are_not_there_are_one_line(lists, make, entry, message):
    with pytest.raises(UserError, match=message):
        make("missing", {"source": "deb822", **entry}, path=lists())


@pytest.mark.parametrize("pattern", ["/var/lib/apt/lists/*", "**"])
def test_a_pattern_is_of_names_below_the_folder(configured, lists, pattern):
    config = configured("datasets.debian", {"source": "deb822", "path": lists(), "lists": pattern})
    with pytest.raises(UserError, match=r"datasets\.debian\.lists is "):
        Plan(config, ROOT)


def test_init_recognises_lists(lists, beir):
    assert Deb822Source.recognise(FolderListing.of([Path(lists(lzma.compress, ".xz"))])) == {}
    assert Deb822Source.recognise(FolderListing.of([beir])) is None


def test_the_catalogue_says_how_the_lists_are_had(configured, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        UserError, match=r"path is data/apt/lists; no such file or folder; .*; apt-get update"
    ):
        Plan(configured("dataset", "debian-de"), ROOT).tables.files()


def test_the_real_collection_has_these_rules(real, make, tmp_path):
    """Its packages of some sources, written as lists, are made into what its folder has of them."""
    folder = real("debian")
    source_of = {
        package: source for _, (package, _, source) in read_fields(folder / "sections.tsv", "", 3)
    }
    texts = {record["_id"]: record["text"] for _, record in read_records(folder / "corpus.jsonl")}
    synopses = {
        record["_id"]: record["text"] for _, record in read_records(folder / "queries.jsonl")
    }
    assert len({*texts.values()}) == len(texts)
    judged, split_of = dict[str, set[str]](), dict[str, str]()
    for split in ("train", "dev", "test"):
        for _, (query, passage, _) in list(read_fields(folder / f"qrels/{split}.tsv", "", 3))[1:]:
            judged.setdefault(query, set()).add(passage)
            split_of[query] = split
    assert Counter(map(len, judged.values())).keys() <= {*range(1, 11)}
    drawn = {
        query
        for query, passages in judged.items()
        if all(source_of[p].startswith("k") for p in passages)
    }
    packages = {}
    for query in drawn:
        for passage in judged[query]:
            packages[passage] = (source_of[passage], "k", synopses[query], [texts[passage]])
    drawn -= {
        query for query in drawn if any(packages[p][2] != synopses[query] for p in judged[query])
    }
    dataset = make(
        "debian", {"source": "deb822"}, path=write_lists(tmp_path / "lists", packages, {})
    )
    collection = Collection(dataset)
    assert len(drawn) > 1_000
    assert collection.texts(packages) == {package: ("", texts[package]) for package in packages}
    ours = {
        text: (split, {*collection.qrels(split)[query]})
        for split in ("train", "dev", "test")
        for query, text in collection.queries(split).items()
    }
    assert {
        synopses[query]: (split_of[query], judged[query]) for query in drawn
    }.items() <= ours.items()
