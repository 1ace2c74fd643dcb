"""Domains of passages: read from a file, kept by datasets made of others, and a choice of them as a dataset."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tandem.data.collection import Collection
from tandem.data.dataset import run
from tandem.errors import UserError
from tandem.plan.dataset_stages import splits
from tandem.plan.plan import Plan
from tandem.store.artifact import open_artifact
from tandem.store.job import Job

ROOT = Path(__file__).parents[3]
TEXTS = {
    "otter": "eats crabs",
    "seal": "eats fish",
    "heron": "eats frogs",
    "rose": "has thorns",
    "moss": "has none",
}
QRELS = {
    "train": "eats\totter\t1\neats\trose\t0\nhas\trose\t1\n",
    "test": "both\tseal\t1\nboth\tmoss\t2\n",
}
DOMAINS = "name\tlegs\tdomain\notter\t4\tsea\nheron\t2\triver\nrose\t0\tplant\nmoss\t0\tplant\nseal\t0\tsea\n"


@pytest.fixture
def nature(tmp_path):
    """A BEIR folder of five passages; `nature(domains)`: with a file that names those of some."""
    folder = tmp_path / "nature"
    (folder / "qrels").mkdir(parents=True)
    records = [json.dumps({"_id": name, "text": text}) for name, text in TEXTS.items()]
    (folder / "corpus.jsonl").write_text("\n".join(records) + "\n")
    queries = [json.dumps({"_id": name, "text": f"{name}?"}) for name in ("eats", "has", "both")]
    (folder / "queries.jsonl").write_text("\n".join(queries) + "\n")
    for split, lines in QRELS.items():
        (folder / "qrels" / f"{split}.tsv").write_text(lines)

    def with_domains(text: str, name: str = "domains.tsv") -> str:
        (folder / name).write_text(text)
        return str(folder)

    return with_domains


@pytest.fixture
def derive(tmp_path):
    """`derive(name, params, inputs)`: run the stage `dataset` on other artifacts."""

    def run_stage(name, params, inputs):
        run(Job("dataset", tmp_path / "results" / name, params, inputs, {}))
        return open_artifact(tmp_path / "results" / name, "dataset")

    return run_stage


@pytest.fixture
def base(nature, make):
    return make("nature", {"source": "beir", "domains": "domains.tsv", "domain_fields": ["name", "domain"]},
                path=nature(DOMAINS))  # fmt: skip


def domains_of(artifact):
    return dict(
        map(
            tuple,
            (row.values() for row in pq.read_table(artifact.path("domains.parquet")).to_pylist()),
        )
    )


def test_a_file_names_the_domains_of_passages(base):
    assert list(domains_of(base).items()) == [
        ("otter", "sea"), ("seal", "sea"), ("heron", "river"), ("rose", "plant"), ("moss", "plant"),
    ]  # fmt: skip
    assert json.loads(base.path("statistics.json").read_text())["domains"] == {
        "plant": 2,
        "river": 1,
        "sea": 2,
    }


def test_without_them_nothing_is_another(nature, make):
    folder = nature(DOMAINS)
    without = make("without", {"source": "beir"}, path=folder)
    assert "domains.parquet" not in without.manifest.files
    assert "domains" not in json.loads(without.path("statistics.json").read_text())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("d.tsv", "otter\tsea\nheron\triver\n"),
        ("d.tsv", "id\tdomain\notter\tsea\nheron\triver\n"),
        ("d.jsonl", '{"_id": "otter", "domain": "sea"}\n{"_id": "heron", "domain": "river"}\n'),
        (
            "d.jsonl",
            '{"_id": "seal", "domain": null}\n{"_id": "otter", "domain": "sea"}\n'
            '{"_id": "heron", "domain": "river"}\n{"_id": "moss"}\n',
        ),
    ],
)
def test_other_files_and_passages_without_a_domain(nature, make, name, text):
    dataset = make("some", {"source": "beir", "domains": name}, path=nature(text, name))
    assert domains_of(dataset) == {
        "otter": "sea",
        "seal": "",
        "heron": "river",
        "rose": "",
        "moss": "",
    }
    assert dataset.manifest.facts["warnings"] == ["3 passages have no domain"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("otter\tsea\notter\triver\n", r"domains:2: document id 'otter' again"),
        ("Otter\tsea\n", "none of the 1 ids is a passage's, the first is Otter"),
        ("otter\n", r"domains.tsv:1: 1 columns by tabs; a line is id, domain"),
        ("", "domains.tsv: empty"),
    ],
)
def test_a_broken_file_of_domains_is_named(nature, make, text, message):
    with pytest.raises(UserError, match=message):
        make("broken", {"source": "beir", "domains": "domains.tsv"}, path=nature(text))


def test_a_field_that_no_record_has_is_named(nature, make):
    params = {"source": "beir", "domains": "d.jsonl"}
    with pytest.raises(UserError, match="d.jsonl: no domain; a field named domain is needed"):
        make("misspelt", params, path=nature('{"_id": "otter", "domian": "sea"}\n', "d.jsonl"))


def test_only_some_domains(base, derive):
    dataset = derive("sea", {"source": "domains", "only": ["sea", "river"]}, {"of": base})
    collection = Collection(dataset)
    assert collection.doc_ids().to_pylist() == ["otter", "seal", "heron"]
    # `has` asks for the rose alone; the label of the rose for `eats` and that of the moss for `both` go.
    assert collection.qrels("train") == {"eats": {"otter": 1}}
    assert collection.qrels("test") == {"both": {"seal": 1}}
    assert collection.queries("train") == {"eats": "eats?"}
    assert domains_of(dataset) == {"otter": "sea", "seal": "sea", "heron": "river"}
    assert dataset.manifest.facts["warnings"] == []


def test_without_some_domains(base, derive):
    collection = Collection(derive("land", {"source": "domains", "without": ["sea"]}, {"of": base}))
    assert collection.doc_ids().to_pylist() == ["heron", "rose", "moss"]
    # the rose is judged for `eats`, but is not relevant to it
    assert collection.qrels("train") == {"has": {"rose": 1}}
    assert collection.qrels("test") == {"both": {"moss": 2}}


def test_passages_without_a_domain_go_with_only_and_stay_with_without(nature, make, derive):
    base = make(
        "some",
        {"source": "beir", "domains": "d.tsv"},
        path=nature("otter\tsea\nrose\tplant\n", "d.tsv"),
    )
    of = {"of": base}
    only = (
        Collection(derive("only", {"source": "domains", "only": ["sea"]}, of)).doc_ids().to_pylist()
    )
    without = (
        Collection(derive("without", {"source": "domains", "without": ["sea"]}, of))
        .doc_ids()
        .to_pylist()
    )
    assert (only, without) == (["otter"], ["seal", "heron", "rose", "moss"])


def test_unknown_domains_and_passages_without_any_are_refused(base, nature, make, derive):
    with pytest.raises(
        UserError, match=r"only names see, which is not a domain; did you mean sea\?"
    ):
        derive("see", {"source": "domains", "only": ["see"]}, {"of": base})
    plain = make("plain", {"source": "beir"}, path=nature(DOMAINS))
    with pytest.raises(UserError, match="the passages of plain have no domains"):
        derive("none", {"source": "domains", "only": ["sea"]}, {"of": plain})


def test_datasets_made_of_others_keep_domains(base, derive):
    union = derive("both", {"source": "union", "names": ["a", "b"]}, {"of.0": base, "of.1": base})
    assert domains_of(union)["b.heron"] == "river"
    assert len(domains_of(union)) == 10
    windows = derive("cut", {"source": "windows", "length": 1, "stride": 1}, {"of": base})
    assert list(domains_of(windows).items())[:3] == [
        ("otter#0", "sea"),
        ("otter#1", "sea"),
        ("seal#0", "sea"),
    ]
    assert len(domains_of(windows)) == 10
    pair = derive("pair", {"source": "pair"}, {"corpus": base, "queries": base})
    unlabelled = derive("more", {"source": "unlabelled", "share": 0.999}, {"of": base})
    assert domains_of(pair) == domains_of(unlabelled) == domains_of(base)


def test_it_is_planned_from_its_base(configured, nature):
    config = configured(
        "datasets.nature", {"source": "beir", "path": nature(DOMAINS), "language": "fi"}
    )
    config["datasets"]["sea"] = {"source": "domains", "of": "nature", "only": ["sea"]}
    planner = Plan(config, ROOT).planner
    stage = planner.dataset("sea")
    assert stage.upstream == {"of": planner.dataset("nature")}
    assert stage.values["only"] == ["sea"]
    assert planner.ctx.datasets["sea"].language == "fi"
    assert splits(planner.ctx, "sea") == {"train", "test"}


@pytest.mark.parametrize("keys", [{}, {"only": ["sea"], "without": ["land"]}, {"only": []}])
def test_one_of_only_and_without_is_needed(configured, keys):
    with pytest.raises(UserError, match=r"datasets\.sea"):
        Plan(configured("datasets.sea", {"source": "domains", "of": "pydocs", **keys}), ROOT)


def test_the_file_of_domains_decides_the_key(configured, nature):
    entry = {
        "source": "beir",
        "path": nature(DOMAINS),
        "domains": "domains.tsv",
        "domain_fields": ["name", "domain"],
    }

    def key():
        return Plan(configured("datasets.nature", entry), ROOT).planner.dataset("nature").key

    before = key()
    nature(DOMAINS.replace("river", "lake"))
    assert key() != before
