"""The tiny collection: its passages, its files, a project with a configuration, and the ways to run commands on it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryFile
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from tandem.store.files import sha256, write_json

ROOT = Path(__file__).parents[1]
QUESTIONS = {
    "train": "what does the {} eat",
    "dev": "what kind of animal is the {}",
    "test": "how does the {} behave",
}
PART = {"train": 3, "dev": 1, "test": 2}  # which of a subject's three passages answers
SUBJECTS = {
    "otter": ("a river mammal", "floats on its back", "crabs and urchins"),
    "heron": ("a wading bird", "stands still for an hour", "frogs and small fish"),
    "beaver": ("a large rodent", "fells trees for its dam", "bark and water lilies"),
    "bat": ("a flying mammal", "hears the echo of its calls", "moths and midges"),
    "lynx": ("a forest cat", "walks on snow without sinking", "hares and roe deer"),
    "mole": ("a digging mammal", "lives below the meadow", "earthworms and grubs"),
    "stork": ("a white bird", "flies to Africa in August", "mice and grasshoppers"),
    "salmon": ("a strong fish", "swims up the river to spawn", "krill and herring"),
    "badger": ("a striped mammal", "sleeps in a deep sett", "worms and roots"),
    "owl": ("a night bird", "turns its head far around", "voles and beetles"),
    "toad": ("a slow amphibian", "hides under stones by day", "slugs and ants"),
    "seal": ("a sea mammal", "rests on sand banks", "cod and flounders"),
    "wolf": ("a wild dog", "hunts in a pack", "deer and boar"),
    "crane": ("a grey bird", "dances in the spring", "maize and snails"),
    "viper": ("a shy snake", "suns itself in the morning", "lizards and mice"),
    "hare": ("a fast mammal", "turns sharply when chased", "clover and buds"),
    "eel": ("a long fish", "crosses the ocean once", "shrimps and mussels"),
    "raven": ("a clever bird", "opens bags and boxes", "carrion and eggs"),
    "bison": ("a heavy grazer", "ploughs the snow with its head", "sedges and acorns"),
    "newt": ("a small amphibian", "grows a crest in the pond", "tadpoles and fleas"),
}
TRAIN = {"steps": 4, "queries_per_batch": 4, "list_size": 4, "lr": 1e-3, "precision": "fp32"}
LAYOUT = {
    "title": "Tiny",
    "baseline": {"system": "BM25"},
    "columns": [{"measure": "RR@10"}, {"measure": "nDCG@10"}],
    "rows": [
        {"system": "BM25", "run": "bm25"},
        {"system": "Retriever", "run": "rocketqav2.retriever"},
        {
            "system": "Re-ranker",
            "first_stage": "Retriever",
            "run": "rocketqav2.retriever+rocketqav2.reranker",
        },
    ],
}


def passages() -> list[tuple[str, str, str]]:
    """(id, title, text): three passages a subject, of different lengths; every third has no title."""
    rows = []
    for name, (kind, habit, food) in SUBJECTS.items():
        rows.append((f"{name}-1", f"The {name}", f"The {name} is {kind}."))
        rows.append(
            (
                f"{name}-2",
                f"The {name}",
                f"Watch it for a day and you will see that the {name} {habit}.",
            )
        )
        rows.append(
            (
                f"{name}-3",
                "",
                f"The {name} eats {food}, more of them in autumn, when winter is close; {kind}.",
            )
        )
    return rows


def put(config: dict, at: Sequence[str], value: object) -> None:
    """Set a value at a path; whatever is on the way and no mapping becomes one."""
    for part in at[:-1]:
        if not isinstance(config.get(part), dict):
            config[part] = {}
        config = config[part]
    config[at[-1]] = value


def write_beir(folder, documents, splits=("train", "test")):
    """A BEIR folder: every split asks about each subject, and one passage of it is relevant."""
    (folder / "qrels").mkdir(parents=True)
    rows = [{"_id": doc, "title": title, "text": text} for doc, title, text in documents]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    subjects, queries = (
        [doc.removesuffix("-1") for doc, _, _ in documents if doc.endswith("-1")],
        [],
    )
    for split in splits:
        queries += [
            {"_id": f"{split}-{subject}", "text": QUESTIONS[split].format(subject)}
            for subject in subjects
        ]
        judged = "".join(f"{split}-{subject}\t{subject}-{PART[split]}\t1\n" for subject in subjects)
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in queries))


def write_qrels_folder(at: Path, name: str, splits: Iterable[str]) -> str:
    """Write a folder in BEIR's layout with a passage and a query `name`, one relevant to the other in some splits."""
    (at / "qrels").mkdir(parents=True)
    for file in ("corpus.jsonl", "queries.jsonl"):
        (at / file).write_text(json.dumps({"_id": name, "text": "x"}) + "\n")
    for split in splits:
        (at / "qrels" / f"{split}.tsv").write_text(f"{name}\t{name}\t1\n")
    return str(at)


def write_collection(
    folder: Path, documents: list[tuple[str, str, str]], unjudged: int = 0
) -> None:
    """The Parquet files of a dataset artifact; each split asks about every subject, or for the first document.

    Behind them stand `unjudged` further test queries, q0, q1, ….
    """
    ids, titles, texts = zip(*documents, strict=True)
    pq.write_table(
        pa.table({"doc_id": ids, "title": titles, "text": texts}), folder / "corpus.parquet"
    )
    queries = [
        (f"{split}-{name}", text.format(name), split)
        for split, text in QUESTIONS.items()
        for name in SUBJECTS
    ]
    queries += [(f"q{number}", "?", "test") for number in range(unjudged)]
    columns = dict(zip(("query_id", "text", "split"), zip(*queries, strict=True), strict=True))
    pq.write_table(pa.table(columns), folder / "queries.parquet")
    relevant = {(split, name): f"{name}-{PART[split]}" for split in QUESTIONS for name in SUBJECTS}
    known = {at: doc if doc in set(ids) else ids[0] for at, doc in relevant.items()}
    qrels = [(f"{split}-{name}", doc, 1, split) for (split, name), doc in known.items()]
    columns = dict(
        zip(("query_id", "doc_id", "relevance", "split"), zip(*qrels, strict=True), strict=True)
    )
    columns["relevance"] = pa.array(columns["relevance"], pa.int32())
    pq.write_table(pa.table(columns), folder / "qrels.parquet")
    write_json(folder / "statistics.json", {})


UNCALIBRATED = {
    "by": "ce_bm25neg",
    "negative_below": 0.9,
    "calibrate": None,
    "calibrate_queries": None,
}


def tiny_config(folder, encoder_folder):
    """The configuration over `folder/beir`: short texts and few steps, exact arithmetic, no table."""
    return {
        "dataset": "tiny",
        "datasets": {"tiny": {"source": "beir", "path": str(folder / "beir")}},
        "encoder": str(encoder_folder),
        "tables": [],
        "depth": {"train": 50, "dev": 20, "test": 20},
        "rerank": {"depth": 5, "precision": "fp32"},
        "lengths": {"query": 16, "passage": 24},
        "encode": {"block": 16, "precision": "fp32"},
        "models": {
            "de_bm25neg": {"candidates": {"depth": 20}, "train": TRAIN},
            "ce_bm25neg": {"train": TRAIN},
            "rocketqav2": {
                "init": {"reranker": "ce_bm25neg"},
                "candidates": {"depth": 20, "denoise": UNCALIBRATED},
                "train": TRAIN,
            },
        },
    }


def snakemake(folder, words, files=("config.yaml",)):
    """The command that runs this checkout's Snakefile in a folder with configuration files of its own."""
    return [
        sys.executable,
        "-m",
        "snakemake",
        *words,
        "-s",
        str(ROOT / "Snakefile"),
        "--directory",
        str(folder),
        "--cores",
        "2",
        "--workflow-profile",
        "none",
        "--rerun-triggers",
        "mtime",
        "params",
        "--configfile",
        *(str(folder / name) for name in files),
    ]


def run_command(line, **options):
    """Status and output of a command; options are those of `subprocess.run`."""
    done = subprocess.run(line, capture_output=True, text=True, **options)
    return done.returncode, done.stdout + done.stderr


def variables_of_stages() -> dict[str, str]:
    """Variables of stages that `run_here` has Snakemake run; conftest.warm replaces it."""
    return {}


def run_here(line):
    """`run_command` of Snakemake, or of Tandem, but in this process: libraries are imported once.

    What is a process' own is as before afterwards; a GPU would be leased to this process for good. Jobs that Snakemake
    starts are processes, and print into the same file.
    """
    import snakemake.cli

    from tandem.__main__ import main

    _, _, program, *words = map(str, line)
    told = {} if program == "tandem" else variables_of_stages()
    argv, environment = (
        patch.object(sys, "argv", [program, *words]),
        patch.dict(os.environ, told, CUDA_VISIBLE_DEVICES=""),
    )
    ended_by = signal.getsignal(signal.SIGTERM)
    with (
        TemporaryFile("w+", buffering=1) as output,
        printing_into(output),
        chdir(os.getcwd()),
        argv,
        environment,
    ):
        try:
            status = main() if program == "tandem" else snakemake.cli.main(words)
        except (
            SystemExit
        ) as ended:  # a text is printed when the process ends, whose status is 1 then
            status = ended.code
        finally:
            signal.signal(signal.SIGTERM, ended_by)
        output.seek(0)
        text = output.read()
    return (1, f"{text}{status}\n") if isinstance(status, str) else (status or 0, text)


def run_tandem(*words):
    """Run a command of Tandem that has to succeed; its output."""
    status, output = run_here([sys.executable, "-m", "tandem", *map(str, words)])
    assert status == 0, output
    return output


def find_run(plan, system, split="test"):
    """The stage that writes a system's run."""
    return plan.planner.run(system, split, "here")


@contextmanager
def printing_into(file):
    """Have a file take what is printed by this process, and by those that it starts."""
    before = {number: os.dup(number) for number in (1, 2)}
    try:
        with redirect_stdout(file), redirect_stderr(file):
            for number in before:
                os.dup2(file.fileno(), number)
            yield
    finally:
        for number, saved in before.items():
            os.dup2(saved, number)
            os.close(saved)


class Project:
    """A folder with a tiny configuration, where Snakemake runs this checkout's Snakefile."""

    def __init__(self, folder, encoder_folder, documents):
        self.folder = folder
        write_beir(folder / "beir", documents)
        (folder / "tiny.yaml").write_text(yaml.safe_dump(LAYOUT))
        config = {**tiny_config(folder, encoder_folder), "tables": [str(folder / "tiny.yaml")]}
        (folder / "config.yaml").write_text(yaml.safe_dump(config))

    @classmethod
    def at(cls, folder):
        """A folder that is a project already."""
        project = object.__new__(cls)
        project.folder = folder
        return project

    def line(self, *words):
        return snakemake(self.folder, words)

    def run(self, *words):
        """Status and output."""
        return run_here(self.line(*words))

    def files(self, name, kind="*"):
        """Content hash of every file of that name, by its place without the folder's."""
        paths = self.folder.glob(f"results/*/{kind}/*/{name}")
        return {str(path.relative_to(self.folder)): sha256(path) for path in paths}


def jobs(output):
    """Rule → number of jobs, of a dry run's statistics."""
    lines = output[output.index("Job stats:") :].splitlines()[3:]
    rows = [line.split() for line in lines[: lines.index("")]]
    return {rule: int(count) for rule, count in rows if rule != "total"}


def commit_all(folder: Path) -> None:
    """Make a git repository of a folder, with one commit of all that is in it."""
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    for words in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-q", "-m", "a release"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
