"""A newcomer's mistakes: the last line that is printed names what to mend, and the exit status is not 0.

The commands are typed in a folder with a collection in `data/` and the configuration `mine.yaml`.
"""

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from tiny_project import ROOT, run_command, run_here, write_beir

MINE = "dataset: mine\ndatasets: {mine: {source: beir, path: data}}\n"
NO_MODELS = (
    "recipes: []\nmodels: {de_bm25neg: null, ce_bm25neg: null, ce_deneg: null, rocketqav2: null}\n"
)
TABLE = "title: Mine\ncolumns: [{measure: RR@10}]\nrows: [{system: BM25, run: bm26}]\n"
STRANGE = "query-id\tcorpus-id\tscore\ntest-otter\tD-20\t1\n"


TAKEN = {
    "old/mine.yaml": MINE + "seed: 7\n",
    "results/mine/configuration.json": '["old/mine.yaml"]',
}


class Mistake(NamedTuple):
    """What is typed, what the last line says, what stands in mine.yaml besides `MINE`, and other files' contents."""

    command: str
    line: str
    mine: str = ""
    files: dict[str, str] | None = None
    status: int = 1


MISTAKES = {
    # on the command line
    "a misspelt command": Mistake(
        "tandem rnu", "tandem: rnu is not a command; did you mean run?", status=2
    ),
    "a misspelt flag": Mistake(
        "tandem verify --quik", "Unknown option: --quik. Did you mean --quick"
    ),
    "a file that is not there": Mistake(
        "tandem run mime.yaml", "tandem run: mime.yaml: no such file; did you mean mine.yaml?"
    ),
    "a folder in place of a file": Mistake(
        "tandem run data",
        "data is a folder; `tandem init NAME --data data` writes a configuration for it",
    ),
    "a misspelt target": Mistake(
        "tandem run mine.yaml summry", "summry is not a target; did you mean summary?"
    ),
    "a flag of Snakemake's": Mistake(
        "tandem run mine.yaml --cores 2", "flags of Snakemake stand after --: tandem run -- --cores"
    ),
    "a colon for =": Mistake(
        "tandem run --config a:b", "--config a:b: allowed: key=value, such as seed=7"
    ),
    "no key": Mistake("tandem run --config =3", "--config =3: allowed: key=value, such as seed=7"),
    "a folder for a configuration": Mistake(
        "tandem estimate data", "data is a folder; `tandem init NAME --data data` writes "
    ),
    "no folder": Mistake("tandem init x --data ''", "--data names nothing; allowed: a folder, "),
    "no name beside +": Mistake(
        "tandem search bm25+ mine.yaml x", "bm25+ is not a system: a name is missing beside +"
    ),
    "a dataset of unknown size": Mistake(
        "tandem estimate mine.yaml",
        "/stage.json --configfile mine.yaml` counts it",
    ),
    "dots between keys": Mistake(
        "tandem run mine.yaml --config models.rocketqav2.train.lr=1",
        "models.rocketqav2.train.lr is not a known key; write models: {rocketqav2: {train: {lr: …}}}",
    ),
    "spaces without quotes": Mistake(
        "tandem run mine.yaml --config bm25={k1: 1.2}",
        "{k1: is not valid YAML; put quotes around what has spaces",
    ),
    "a date that is none": Mistake(
        "tandem run mine.yaml --config dataset=2026-13-01", "dataset: 2026-13-01 is unknown"
    ),
    "a list within lists without an end": Mistake(
        f"tandem run mine.yaml --config x={'[' * 300}{']' * 300}", "nested deeper than"
    ),
    "an unknown member of a group": Mistake(
        "tandem estimate g.yaml",
        "datasets.g.of: nfcorpsu is unknown; did you mean nfcorpus?",
        files={"g.yaml": "dataset: g\ndatasets: {g: {source: group, of: [scifact, nfcorpsu]}}\n"},
    ),
    "a file without a name": Mistake(
        "tandem estimate m.yaml",
        "datasets.m.corpus is ''; the name of a file is needed",
        files={
            "m.yaml": "dataset: m\n"
            "datasets: {m: {source: files, path: ., corpus: '', queries: {test: q.tsv}}}\n"
        },
    ),
    "a table of another configuration": Mistake(
        "tandem lineage summary:BM25",
        "summary: is not a table; did you mean mine/summary?",
        files={"results/mine/tables/summary.json": "{}"},
    ),
    "a configuration of the same name": Mistake(
        "tandem run mine.yaml baseline",
        "results/mine has the tables of old/mine.yaml, which those of mine.yaml would replace; rename one of them",
        files={**TAKEN, "results/mine/tables/summary.json": "{}"},
    ),
    "a folder for a new configuration that is not there": Mistake(
        "tandem init new/mine --data data", "new/mine.yaml: there is no folder new; make it first"
    ),
    # in the configuration
    "a misspelt key": Mistake(
        "tandem run mine.yaml", "datset is not a known key; did you mean dataset?", "datset: x"
    ),
    "a misspelt key of a model": Mistake(
        "tandem run mine.yaml",
        "models.de_bm25neg.train.epoch is not a known key; did you mean epochs?",
        "models: {de_bm25neg: {train: {epoch: 3}}}",
    ),
    "a misspelt model": Mistake(
        "tandem run mine.yaml",
        "models.rocketqa2.objective is missing; allowed: dual, cross, joint; did you mean rocketqav2?",
        "models: {rocketqa2: {train: {epochs: 3}}}",
    ),
    "a word for a number": Mistake(
        "tandem run mine.yaml", 'seed is "many"; allowed: integer', "seed: many"
    ),
    "a misspelt dataset": Mistake("tandem run --config dataset=scifct", "did you mean scifact?"),
    "a count below 0": Mistake(
        "tandem estimate other.yaml",
        "datasets.mine.counts.passages is -5; allowed: ≥ 0",
        files={"other.yaml": MINE.replace("path: data", "path: data, counts: {passages: -5}")},
    ),
    "a misspelt encoder": Mistake(
        "tandem run mine.yaml", "encoder: minilmm is unknown", "encoder: minilmm"
    ),
    "a folder that is no encoder": Mistake(
        "tandem run mine.yaml", "model.safetensors is missing", "encoder: data"
    ),
    "a misspelt loss": Mistake(
        "tandem run mine.yaml",
        'models.ce_bm25neg.train.loss is "listwize"; allowed: listwise',
        "models: {ce_bm25neg: {train: {loss: listwize}}}",
    ),
    "an index that FAISS has for distances alone": Mistake(
        "tandem run mine.yaml",
        "indexes.mine.factory is HNSW32,PQ16: HNSW32,PQ16: FAISS has it for L2 distances alone; name Flat or SQ8",
        'indexes: {mine: {factory: "HNSW32,PQ16"}}',
    ),
    "an index that FAISS does not store": Mistake(
        "tandem run mine.yaml",
        "indexes.mine.factory is IVF16,ZnLattice2x3_4: ZnLattice2x3_4: FAISS does not store its vectors",
        'indexes: {mine: {factory: "IVF16,ZnLattice2x3_4"}}',
    ),
    "a misspelt table": Mistake(
        "tandem run mine.yaml",
        "tables: sumary is unknown; did you mean summary?",
        "tables: [sumary]",
    ),
    "a misspelt judge": Mistake(
        "tandem run mine.yaml audits",
        "audits.judges: ce_bm25ng is unknown; did you mean ce_bm25neg?",
        "audits: {judges: [ce_bm25ng]}",
    ),
    "a misspelt system of the audits": Mistake(
        "tandem run mine.yaml audits",
        "audits.systems: de_bm25ng is unknown; did you mean de_bm25neg?",
        "audits: {systems: [bm25, de_bm25ng]}",
    ),
    "measures below the runs": Mistake(
        "tandem run other.yaml",
        "datasets.mine.measures: R@5000 looks deeper than the runs go (1000); raise depth.test",
        files={"other.yaml": MINE.replace("path: data", "path: data, measures: [R@5000]")},
    ),
    "an unknown key beside a file": Mistake(
        "tandem estimate mine.yaml --config sed=7", "sed is not a known key; did you mean seed?"
    ),
    "a table that is none": Mistake(
        "tandem run mine.yaml results/mine/tables/sumary.csv",
        "results/mine/tables/sumary.csv: sumary is not a table; did you mean summary?",
    ),
    "a stage of another configuration": Mistake(
        "tandem run mine.yaml results/mine/score/bm25.test-0000000000/stage.json",
        "results/mine/score/bm25.test-0000000000/stage.json: this configuration has no such stage",
    ),
    "its archive": Mistake(
        "tandem run mine.yaml results/mine/score/bm25.test-0000000000.tar",
        "results/mine/score/bm25.test-0000000000/stage.json: this configuration has no such stage",
    ),
    "no table": Mistake(
        "tandem run mine.yaml", "tables is [], and the report shows tables; allowed: ", "tables: []"
    ),
    "a misspelt run": Mistake(
        "tandem run mine.yaml",
        "mine_table.yaml: bm26 is not a model; did you mean bm25?",
        "tables: [mine_table.yaml]",
        {"mine_table.yaml": TABLE},
    ),
    "a split that the dataset lacks": Mistake(
        "tandem run mine.yaml", "score.split is dl19, but dataset mine has ", "score: {split: dl19}"
    ),
    "a split that the dataset lacks, as its own": Mistake(
        "tandem run mine.yaml --config 'datasets={mine: {score_split: foo}}'",
        "datasets.mine.score_split is foo, but dataset mine has ",
    ),
    "a name that is taken": Mistake(
        "tandem run mine.yaml",
        "models.bm25 has the name of a run that every configuration has; name it otherwise",
        "models: {bm25: {like: de_bm25neg}}",
    ),
    "a misspelt measure": Mistake(
        "tandem run mine.yaml",
        "score.measures: nDCG@ten is malformed; write nDCG@10",
        "score: {measures: [nDCG@ten]}",
    ),
    "a table without its models": Mistake(
        "tandem run mine.yaml", "table4.yaml: de_bm25neg is not a model; allowed: ", NO_MODELS
    ),
    "a table that another configuration has": Mistake(
        "tandem run mine.yaml fusion", f"; it belongs to --configfile {ROOT}/config/fusion.yaml"
    ),
    "a paper that another configuration has": Mistake(
        "tandem run mine.yaml rocketqa",
        f"candidates.depth (and 1 more); it belongs to --configfile {ROOT}/config/msmarco.yaml",
    ),
    "one dataset for two": Mistake(
        "tandem run mine.yaml dureader_retrieval_table7",
        "mine stands in for both dureader-retrieval, which is trained on, and cmedqa2, which is searched; name two by",
    ),
    "a key that stands twice": Mistake(
        "tandem run mine.yaml",
        "mine.yaml:5: seed stands in line 3 already",
        "seed: 1\ntables: [summary]\nseed: 2\n",
    ),
    "a key that stands twice on the command line": Mistake(
        "tandem run mine.yaml --config 'bm25={k1: 1.2, k1: 0.9}'",
        "k1 stands twice, and YAML would drop the first; write it once",
    ),
    "an empty file": Mistake(
        "tandem run mine.yaml e.yaml",
        "tandem run: e.yaml: holds nothing; allowed: keys",
        files={"e.yaml": "#\n"},
    ),
    "a control character": Mistake(
        "tandem run mine.yaml",
        "mine.yaml: not valid YAML: control characters are not allowed",
        "seed: 1 \0",
    ),
    "broken YAML": Mistake(
        "tandem run mine.yaml", "tandem run: mine.yaml:4: not valid YAML", "tables: [summary\n"
    ),
    "a list for keys": Mistake(
        "tandem run list.yaml",
        "list.yaml: holds list and no mapping of keys",
        files={"list.yaml": "- dataset: mine\n"},
    ),
    "data that are not there": Mistake(
        "tandem run other.yaml",
        "datasets.mine.path is dta; no such file or folder",
        files={"other.yaml": MINE.replace("path: data", "path: dta")},
    ),
    "a plugin that is not there": Mistake(
        "tandem run mine.yaml",
        "plugins: my_loses.py does not exist; allowed: Python files",
        "plugins: [my_loses.py]",
    ),
    "a plugin that is no Python": Mistake(
        "tandem run mine.yaml",
        "plugins: broken.py:1: SyntaxError",
        "plugins: [broken.py]",
        {"broken.py": "def f(:\n"},
    ),
    # tandem init
    "init without the data": Mistake(
        "tandem init other --data dta", "tandem init: --data dta: no such file or folder"
    ),
    "init a second time": Mistake(
        "tandem init mine --data data",
        "mine.yaml exists; choose another name, or replace it with --force",
    ),
    "judgements of other passages": Mistake(
        "tandem init other --data data",
        "0 of 2 qrels name a passage of the corpus: yours look like D-20, the corpus has",
        files={
            "data/qrels/test.tsv": STRANGE,
            "data/qrels/train.tsv": STRANGE.replace("test-", "train-"),
        },
    ),
    # what comes after a run, before it
    "a search before the run": Mistake(
        'tandem search bm25 mine.yaml "an otter"', "bm25 cannot be used before lucene "
    ),
    "a search without a system": Mistake(
        'tandem search mine.yaml "an otter"', "an otter is not a system"
    ),
    "a search by a re-ranker alone": Mistake(
        'tandem search ce_deneg mine.yaml "an otter"',
        "ce_deneg is a cross-encoder, which re-ranks a list; say whose: bm25+ce_deneg",
    ),
    "a table before the run": Mistake(
        "tandem show results/tables/summary.csv",
        "results/tables/summary.json: no such file; `tandem run` writes it",
    ),
    "a table without a name": Mistake("tandem show ''", "no such file; `tandem run` writes it"),
    "a verification of what is no result": Mistake(
        "tandem verify data", "data: no artifact is there; give results/ or a folder below it"
    ),
    "a lineage before the run": Mistake(
        "tandem lineage summary:BM25:RR@10",
        "results/tables/summary.json: no such file; `tandem run` writes it",
    ),
    "unknown hardware": Mistake(
        "tandem estimate mine.yaml --hardware h100",
        "execution.hardware: h100 is unknown; did you mean h200?",
    ),
    # Snakemake itself: what it reads before the Snakefile (docs/reliability.md) has a traceback above the line
    "Snakemake: a file that is not there": Mistake(
        "snakemake -n --configfile mime.yaml",
        "FileNotFoundError: [Errno 2] No such file or directory: 'mime.yaml'",
    ),
    "Snakemake: a target after --configfile": Mistake(
        "snakemake -n --configfile mine.yaml baseline", "No such file or directory: 'baseline'"
    ),
    "Snakemake: a profile that is not there": Mistake(
        "snakemake --profile typo", "profile directory given (typo), but no profile.yaml"
    ),
    "Snakemake: a colon for =": Mistake(
        "snakemake -n --config a:b",
        "Config entries have to be defined as name=value pairs. (Unparsable value: 'a:b')",
    ),
    "Snakemake: a misspelt target": Mistake(
        "snakemake -n summry --configfile mine.yaml",
        "summry is not a target; did you mean summary?",
    ),
    "Snakemake: a file that no rule makes": Mistake(
        "snakemake -n results/mine/summry.csv --configfile mine.yaml",
        "No rule to produce results/mine/summry.csv",
    ),
    "Snakemake: a configuration of the same name": Mistake(
        "snakemake -n baseline --configfile mine.yaml",
        "results/mine has the tables of old/mine.yaml, which those of mine.yaml would replace; rename one of them",
        files={**TAKEN, "results/mine/report.html": ""},
    ),
    "Snakemake: a misspelt key": Mistake(
        "snakemake -n --configfile mine.yaml",
        "datset is not a known key; did you mean dataset?",
        "datset: x",
    ),
    "Snakemake: --config twice": Mistake(
        "snakemake -n --configfile mine.yaml --config seed=7 --config bm25='{k1: 1.2}'",
        "--config stands twice, and Snakemake takes the last one alone",
    ),
    "Snakemake: a key that stands twice on the command line": Mistake(
        "snakemake -n --configfile mine.yaml --config 'bm25={k1: 1.2, k1: 0.9}'",
        "k1 stands twice, and YAML would drop the first; write it once",
    ),
    "Snakemake: a table without its models": Mistake(
        "snakemake -n --configfile mine.yaml",
        "table4.yaml: de_bm25neg is not a model; allowed: ",
        NO_MODELS,
    ),
}


@pytest.fixture
def here(tmp_path, monkeypatch, documents) -> Path:
    """The working folder: a collection and a configuration that names it."""
    write_beir(tmp_path / "data", documents)
    (tmp_path / "mine.yaml").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def typed(command: str) -> tuple[int, list[str]]:
    """Exit status and lines of a command, run in this process."""
    program, *words = shlex.split(command)
    words += ["-s", str(ROOT / "Snakefile")] if program == "snakemake" else []
    status, output = run_here([sys.executable, "-m", program, *words])
    return status, [line for line in output.splitlines() if line.strip()]


@pytest.mark.parametrize("name", MISTAKES)
def test_the_last_line_names_the_mistake(name, here):
    mistake = MISTAKES[name]
    (here / "mine.yaml").write_text(MINE + mistake.mine)
    for path, content in (mistake.files or {}).items():
        (here / path).parent.mkdir(parents=True, exist_ok=True)
        (here / path).write_text(content)
    before = sorted(here.rglob("*"))
    status, lines = typed(mistake.command)
    assert (status, mistake.line in lines[-1]) == (mistake.status, True), lines[-5:]
    assert [
        path
        for path in sorted(here.rglob("*"))
        if path not in before and ".snakemake" not in path.parts
    ] == []


def test_a_dataset_that_is_defined_and_not_selected_is_named(here):
    (here / "mine.yaml").write_text(MINE.replace("dataset: mine\n", ""))
    status, lines = typed("snakemake -n baseline --configfile mine.yaml")
    line = (
        "datasets defines mine, which nothing uses; `dataset: mine` searches it instead of pydocs"
    )
    assert (status, line in lines) == (0, True)


def test_a_copied_checkout_is_not_run_by_the_old_ones_program(here):
    (here / "workflow/tandem").mkdir(parents=True)
    shutil.copy(ROOT / "workflow/tandem/cli.py", here / "workflow/tandem")
    status, lines = typed("tandem run mine.yaml")
    assert (status, lines[-1]) == (
        1,
        f"tandem run: {here} is a checkout, but this is the program of {ROOT}; run envs/setup.sh here, then"
        " `source .venv/bin/activate` again",
    )


@pytest.mark.parametrize("command", ["init mine --data", "run"])
def test_a_folder_that_cannot_be_written_is_named(command, here):
    words = [*command.split(), *([str(here / "data")] if "--data" in command else [])]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "workflow")}
    folder = "/sys"  # where root cannot write either
    status, output = run_command(
        [sys.executable, "-m", "tandem", *words], cwd=folder, env=environment
    )
    last = output.splitlines()[-1]
    assert status == 1
    assert last.startswith(f"tandem {command.split()[0]}: ")
    assert "work in another folder" in last
    assert "Traceback" not in output


def make(words: str, folder: Path) -> tuple[int, list[str]]:
    """Status and lines of `make -n`, as if no other make ran the tests."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    status, output = run_command(["make", "-n", *words.split()], cwd=folder, env=environment)
    return status, output.splitlines()


@pytest.mark.parametrize(
    ("place", "first"), [("here", "python -m tandem run"), ("elsewhere", "envs/setup.sh")]
)
def test_make_sets_up_a_checkout_that_was_copied_or_moved(place, first, here):
    for name in ("Makefile", "pyproject.toml", "envs/setup.sh", "envs/requirements.lock"):
        (here / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, here / name)
    (here / ".venv/bin").mkdir(parents=True)
    (here / ".venv/bin/activate").write_text(
        f"VIRTUAL_ENV={here if place == 'here' else '/old'}/.venv\n"
    )
    (here / ".venv/.installed").touch()
    status, lines = make("run", here)
    assert (status, lines[0].startswith(first)) == (0, True), lines


def test_make_names_the_profiles_that_exist():
    status, lines = make("run PROFILE=typo", ROOT)
    assert status == 2
    assert "*** PROFILE=typo: there is no config/typo.yaml, but config dureader " in lines[-1]


# Below, stages run, in processes of their own.


@pytest.mark.parametrize("program", ["tandem run", "snakemake --cores 1"])
def test_a_stage_that_fails_says_why_in_the_last_line(program, here):
    (here / "data/corpus.jsonl").write_text("no JSON\n")
    name, *words = program.split()
    snakefile = ["-s", str(ROOT / "Snakefile")] if name == "snakemake" else []
    files = ["--configfile", "mine.yaml"]
    status, output = run_command(
        [sys.executable, "-m", name, *words, "baseline", *snakefile, *files], cwd=here
    )
    assert status == 1
    assert output.splitlines()[-1].startswith("tandem dataset: data/corpus.jsonl:1: ")
    assert [*here.rglob("locks/*")] == []


def test_a_dataset_of_the_catalogue_without_a_network(here):
    nowhere = dict.fromkeys(
        ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY"), "http://127.0.0.1:9"
    )
    env = (
        os.environ | nowhere | {"IR_DATASETS_HOME": str(here / "irds"), "IR_DATASETS_DL_TRIES": "1"}
    )
    line = [sys.executable, "-m", "tandem", "run", "baseline", "--config", "dataset=scifact"]
    status, output = run_command(line, cwd=here, env=env)
    assert status == 1
    last = output.splitlines()[-1]
    assert last.startswith("tandem dataset: ir_datasets cannot download the files: ")
    assert last.endswith(
        f"`tandem prefetch` fetches them on a machine with a network, into {here}/irds (IR_DATASETS_HOME)"
    )


def test_a_full_disk_in_lucene(make_job, dataset, command, tmp_path):
    job = make_job("lucene", tmp_path / "lucene-0123456789", {}, {"dataset": dataset})
    words = ["-m", "tandem", "lucene", *command(job)]
    status, output = run_command(
        ["bash", "-c", f"ulimit -f 4; exec {shlex.join([sys.executable, *words])}"]
    )
    assert status == 1
    assert output.splitlines()[-1].startswith("tandem lucene: ")
    assert "raise the limit (ulimit -f), then run the same command again" in output.splitlines()[-1]
    assert not (job.out / "stage.json").exists()
