"""Wrong judgements through the command line: the exit status and the last line."""

import subprocess
import sys

import pytest

from tandem.store.artifact import open_artifact

HEADER = "query-id\tcorpus-id\tscore\n"
REFUSED = {
    "columns in the wrong order": (
        "test.tsv",
        "d2\tq2\t1\n",
        "test.tsv:1: 1 of 1 judgements of split test name queries that {0}/queries.jsonl lacks, the first d2;"
        " mend the order of their columns, or give their queries",
    ),
    "unknown documents": (
        "test.tsv",
        HEADER + "q2\tx1\t1\nq2\tx2\t1\n",
        "test.tsv:2: 2 of 2 judgements of split test name documents that the corpus lacks, the first x1;"
        " mend them, or set unknown_documents: drop",
    ),
    "a split in upper case": (
        "Test.tsv",
        HEADER + "q2\td2\t1\n",
        "Test.tsv: a split's judgements are <split>.tsv or .tsv.gz, in lower case; rename or remove it",
    ),
    "a split in another format": (
        "test.txt",
        "q2 0 d2 1\n",
        "test.txt: a split's judgements are <split>.tsv or .tsv.gz, in lower case; rename or remove it",
    ),
    "lines of an old Mac": (
        "test.tsv",
        "query-id\tcorpus-id\tscore\rq2\td2\t1\r",
        "test.tsv: its lines end in carriage returns alone, as on an old Mac; end them in line feeds",
    ),
    "a contradiction": (
        "test.tsv",
        HEADER + "q2\td2\t1\nq2\td2\t0\n",
        "test.tsv:3: query q2 judges document d2 both 1 and 0; one is allowed",
    ),
}


def dataset_command(folder, out):
    """Exit status and last line of the stage on a folder in BEIR's layout."""
    words = ["dataset", "--params.source", "beir", "--run.path", str(folder), "--out", str(out / "stage.json")]
    done = subprocess.run([sys.executable, "-m", "tandem", *words], capture_output=True, text=True)
    return done.returncode, (done.stdout + done.stderr).splitlines()[-1]


@pytest.mark.parametrize("fault", REFUSED)
def test_wrong_judgements_end_the_command_in_one_line(fault, beir, tmp_path):
    name, content, message = REFUSED[fault]
    (beir / "qrels" / "test.tsv").unlink()
    (beir / "qrels" / name).write_text(content)
    last = f"tandem dataset: {beir}/qrels/{message.format(beir)}"
    assert dataset_command(beir, tmp_path / "dataset" / "mine-0") == (1, last)


def test_no_positive_ends_the_command(beir, tmp_path):
    (beir / "qrels" / "test.tsv").write_text(HEADER + "q2\td2\t0\n")
    status, last = dataset_command(beir, tmp_path / "dataset" / "mine-0")
    assert status == 1
    assert last == (
        "tandem dataset: qrels: none of the 1 judgements of split test is above 0; a split needs a relevant passage"
    )


def test_a_few_unknown_documents_are_a_warning_of_the_artifact(beir, tmp_path):
    (beir / "qrels" / "test.tsv").write_text("corpus-id\tquery-id\tscore\nd1\tq2\t0\nd2\tq2\t1.0\nx1\tq2\t1\n")
    assert dataset_command(beir, tmp_path / "dataset" / "mine-0")[0] == 0
    facts = open_artifact(tmp_path / "dataset" / "mine-0").manifest.facts
    assert facts["warnings"] == ["1 judgements name documents that the corpus lacks and are kept: no run can find them"]
