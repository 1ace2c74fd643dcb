"""Every dataset that Tandem brings is right as far as that can be known without downloading it."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tandem.config.loading import load_settings
from tandem.config.merging import catalogue, shipped_entries
from tandem.data.sources import dataset_format
from tandem.errors import UserError
from tandem.extras import catalogue as command
from tandem.extras.catalogue import Presence, format_catalogue, locate_datasets, read_entries
from tandem.extras.irds_needs import find_needs

ROOT = Path(__file__).parents[2]
ENTRIES = shipped_entries(ROOT, "datasets")
IRDS = {name: spec for name, spec in ENTRIES.items() if spec["source"] == "ir_datasets"}
# the 29 rows of the survey's Table 4, in its order
SURVEY = yaml.safe_load("""
[msmarco, mmarco-zh, trec-news, trec-covid, nfcorpus, signal-1m, touche-2020, arguana, dbpedia, orcas, entity-questions,
msmarco-v2, dureader-retrieval, natural-questions, squad-dpr, trivia-qa, hotpotqa, web-questions, curated-trec, fiqa,
bioasq, cqadupstack, quora, archivalqa, ccqa, fever, climate-fever, scifact, scidocs]
""")


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    """Empty homes of ir_datasets and of downloads."""
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path / "irds"))
    monkeypatch.setenv("TANDEM_DATA", str(tmp_path / "data"))
    return tmp_path


def presence(name, spec):
    return locate_datasets([name], read_entries({**ENTRIES, name: spec}))[name]


@pytest.fixture(scope="module")
def metadata():
    """ir_datasets' own counts: (id, part) → number of records."""
    folder = Path(importlib.util.find_spec("ir_datasets").origin).parent
    records = json.loads((folder / "etc/metadata.json").read_text())

    def count(name: str, part: str) -> int:
        entry = records[name][part]
        while "_ref" in entry:
            entry = records[entry["_ref"]][part]
        return entry["count"]

    return count


def parts_of(spec):
    ids = [
        name
        for value in spec["splits"].values()
        for name in ([value] if isinstance(value, str) else value)
    ]
    return ((spec["id"], "docs"), *((name, part) for name in ids for part in ("queries", "qrels")))


@pytest.fixture(scope="module")
def needed():
    """What ir_datasets needs for all entries, asked once."""
    return find_needs(
        tuple(dict.fromkeys(part for spec in IRDS.values() for part in parts_of(spec)))
    )


def test_the_surveys_29_datasets_and_the_papers_own_are_there():
    assert len(SURVEY) == len(set(SURVEY)) == 29
    own = [
        "pydocs",
        "msmarco-titles",
        "dureader2",
        "cmedqa2",
        "ccovid-news",
        "squad",
        "xquad-zh-en",
        "cmrc2018",
        "drcd",
    ]
    assert set(SURVEY + own) <= set(ENTRIES)


def test_every_entry_has_the_keys_of_its_source(configured):
    config = load_settings(configured(), ROOT)
    assert set(config.datasets) == set(ENTRIES)
    derived = {"group", "dissimilar", "pair"}
    assert {spec["source"] for spec in ENTRIES.values()} <= set(dataset_format) | derived


@pytest.mark.parametrize("name", ENTRIES)
def test_what_an_entry_says_fits_together(name):
    spec = ENTRIES[name]
    splits = set(
        spec.get("splits")
        or spec.get("questions")
        or spec.get("files_of")
        or spec.get("qrels")
        or ()
    )
    counted = {re.sub("_qrels$", "", key) for key in spec.get("counts", {})} - {"passages"}
    if splits:
        assert counted <= splits
        assert spec.get("score_split", "test") in splits
    if spec.get("access") == "licence":
        assert spec["where"]
    if spec["source"] == "group":
        assert set(spec["of"]) <= set(ENTRIES)
    if "match" in spec:
        assert spec["relevance"] == "answers"


@pytest.mark.parametrize("name", [name for name, spec in ENTRIES.items() if "files" in spec])
def test_the_files_an_entry_reads_are_those_it_names(name):
    spec = ENTRIES[name]
    read = [spec["corpus"]] if "corpus" in spec else []
    for key in ("questions", "files_of", "queries_of", "queries", "qrels"):
        read += spec.get(key, {}).values()
    if spec["source"] == "dureader2":
        read += [path for paths in spec["splits"].values() for path in paths]
    assert {file.removesuffix(".gz") for file in read} <= {
        file.removesuffix(".gz") for file in spec["files"]
    }


@pytest.mark.parametrize("name", IRDS)
def test_ir_datasets_knows_the_ids_and_counts_and_sizes(name, needed, metadata):
    spec = IRDS[name]
    assert all(needed[part] for part in parts_of(spec)), (
        "an id without documents, queries or judgements"
    )
    counts = {"passages": metadata(spec["id"], "docs")}
    for split, value in spec["splits"].items():
        ids = [value] if isinstance(value, str) else value
        counts[split] = sum(metadata(key, "queries") for key in ids)
        counts[f"{split}_qrels"] = sum(metadata(key, "qrels") for key in ids)
    assert spec["counts"] == counts
    downloads = {need.paths[0]: need.size for part in parts_of(spec) for need in needed[part]}
    if None not in downloads.values():
        assert spec["bytes"] == sum(downloads.values())


@pytest.mark.parametrize(
    ("name", "size"),
    [("cqadupstack", 12), ("nanobeir", 13), ("bright", 12), ("bright-long", 8), ("beir", 14)],
)
def test_a_groups_counts_are_the_sums(name, size):
    members = [ENTRIES[member]["counts"] for member in ENTRIES[name]["of"]]
    assert len(members) == size
    assert ENTRIES[name]["counts"] == {
        key: sum(counts[key] for counts in members) for key in members[0]
    }


def test_the_surveys_cqadupstack():
    assert (
        ENTRIES["cqadupstack"]["counts"] | {"passages": 457199, "test": 13145}
        == ENTRIES["cqadupstack"]["counts"]
    )


def test_beirs_preparations_drop_identical_ids():
    beir = [spec for spec in ENTRIES.values() if str(spec.get("id")).startswith("beir/")]
    assert len(beir) == 25
    assert all(spec["ignore_identical_ids"] for spec in beir)


# The folder of entries


def test_a_file_holds_its_own_entry_and_variants(tmp_path):
    (tmp_path / "a.yaml").write_text("a: {source: beir}\na-b: {source: files}\n")
    assert catalogue(tmp_path) == {"a": {"source": "beir"}, "a-b": {"source": "files"}}
    (tmp_path / "b.yaml").write_text("c: {source: beir}\n")
    with pytest.raises(
        UserError, match=r"b\.yaml: c; a file holds the entry it is named after and b-… ones"
    ):
        catalogue(tmp_path)
    (tmp_path / "b.yaml").unlink()
    (tmp_path / "a-b.yaml").write_text("a-b: {source: beir}\n")
    with pytest.raises(UserError, match=r"a-b stands in another file of .* too; name it once"):
        catalogue(tmp_path)


# Where a dataset is


def test_ir_datasets_files_are_found_where_it_looks(folders, monkeypatch, real):
    home = real("ir_datasets_home")
    spec = {"source": "ir_datasets", "id": "cranfield", "splits": {"test": "cranfield"}}
    result = presence("cranfield", spec)
    assert (result.state, result.bytes, result.exact) == ("download", 506960, True)
    assert not (folders / "irds").exists()  # looking creates nothing
    monkeypatch.setenv("IR_DATASETS_HOME", str(home))
    assert presence("cranfield", spec) == Presence("here", str(home.absolute()))


def test_a_download_put_by_hand_counts(folders):
    spec = ENTRIES["msmarco"]
    # the collection, by its md5
    put = folders / "irds" / "downloads" / "31644046b18952c1386cd4564ba2ae69"
    put.parent.mkdir(parents=True)
    put.touch()
    assert presence("msmarco", spec).bytes == spec["bytes"] - 1057717952


def test_a_download_that_several_share_counts_once():
    assert presence("cqadupstack", ENTRIES["cqadupstack"]).bytes == ENTRIES["cqadupstack"]["bytes"]


def test_files_are_found_in_the_data_folder(folders):
    spec = ENTRIES["squad"]
    assert presence("squad", spec) == Presence(
        "download", str(folders / "data"), 30288272 + 4854279
    )
    for place in (
        "squad/dev-v1.1.json",
        "rajpurkar.github.io/SQuAD-explorer/dataset/train-v1.1.json",
    ):
        (folders / "data" / place).parent.mkdir(parents=True, exist_ok=True)
        (folders / "data" / place).touch()
    assert presence("squad", spec) == Presence("here", str(folders / "data"))
    # only the passages' size is known
    assert not presence("web-questions", ENTRIES["web-questions"]).exact


def test_path_licence_and_local(folders):
    spec = {"source": "beir", "path": str(folders)}
    assert presence("mine", spec) == Presence("here", str(folders))
    assert presence("mine", {**spec, "path": str(folders / "no")}).state == "missing"
    entries = {
        "mine": {**spec, "path": str(folders / "no")},
        "law": {"source": "domains", "of": "mine", "only": ["law"]},
    }
    known = locate_datasets(["law"], read_entries(entries))
    assert known["law"] == Presence("missing", str(folders / "no"))  # what it is made of
    assert presence("bioasq", ENTRIES["bioasq"]) == Presence(
        "licence", "www.bioasq.org (register); BEIR folder in path"
    )
    assert presence("trec-news-wapo", ENTRIES["trec-news-wapo"]).state == "licence"
    (folders / "irds" / "wapo").mkdir(parents=True)
    (folders / "irds" / "wapo" / "WashingtonPost.v2.tar.gz").touch()
    result = presence("trec-news-wapo", ENTRIES["trec-news-wapo"])
    # topics and judgements are public
    assert (result.state, result.bytes) == ("download", 14847 + 669632)
    assert presence("pydocs", ENTRIES["pydocs"]) == Presence("local")


# The command


def test_the_catalogue_is_a_line_each():
    entries = read_entries({name: ENTRIES[name] for name in ("squad", "signal-1m", "pydocs")})
    lines = format_catalogue(entries).split("\n")
    assert [line.split()[0] for line in lines] == ["dataset", "pydocs", "signal-1m", "squad"]
    where = ENTRIES["signal-1m"]["where"]
    assert lines[2].split("  ")[0:1] == ["signal-1m"]
    assert f"2,866,316  test 97                    licence: {where}  Signal AI's" in lines[2]
    assert re.search(r"train 87,599 · dev 10,570  download 35\.1 MB +CC BY-SA 4\.0$", lines[3])
    starts = {
        line.index(word)
        for line, word in zip(lines, ("state", "local", "licence:", "download"), strict=True)
    }
    assert len(starts) == 1


def test_the_command_reads_a_file_of_entries(tmp_path):
    (tmp_path / "d.json").write_text(
        json.dumps({"mine": {"source": "beir", "path": str(tmp_path)}})
    )

    def run(*words):
        command = [sys.executable, "-m", "tandem", "datasets", *words]
        return subprocess.run(
            command, capture_output=True, text=True, env=dict(os.environ), cwd=tmp_path
        )

    done = run("--datasets", "d.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(rf"^mine +here: {tmp_path}$", done.stdout, re.M)
    for words, message in (
        (["--all"], "Unknown option: --all"),
        (["--datasets", "no.json"], "no.json: cannot be read"),
    ):
        done = run(*words)
        assert done.returncode == 1
        assert done.stderr.startswith(f"tandem datasets: {message}")
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", r"d\.json: cannot be read \(a JSON list\)"),
        ('{"mine": []}', "datasets.mine: no entry with a source; allowed are beir"),
        (
            '{"mine": {"source": "tracks"}}',
            "datasets.mine: no entry with a source; allowed are beir",
        ),
        (
            '{"mine": {"source": ["beir"]}}',
            "datasets.mine: no entry with a source; allowed are beir",
        ),
    ],
)
def test_what_is_no_entry_is_named(text, message, tmp_path):
    (tmp_path / "d.json").write_text(text)
    with pytest.raises(UserError, match=message):
        command.print_catalogue(datasets=tmp_path / "d.json")


def test_datasets_that_are_made_of_each_other_have_their_lines(tmp_path, capsys):
    entries = {
        name: {"source": "unlabelled", "of": of, "share": 0.5}
        for name, of in (("a", "b"), ("b", "a"))
    }
    (tmp_path / "d.json").write_text(json.dumps(entries))
    command.print_catalogue(datasets=tmp_path / "d.json")
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        "dataset",
        "a",
        "b",
    ]
