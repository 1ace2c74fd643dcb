"""The stage `bm25s`: the terms of every passage as numbers, which the engine bm25s makes its index of.

k1 and b are not in it: as with Lucene, any search names its own.
"""

import json
from collections.abc import Iterator

from tandem.cluster.progress import Progress, say
from tandem.data.collection import Collection, contents
from tandem.errors import UserError
from tandem.lexical import words
from tandem.models.ragged import write_ragged
from tandem.store.job import Job, writing

ROWS = 8192
NAME, DTYPE, VOCABULARY = "terms", "int32", "vocabulary.json"


def run(job: Job) -> None:
    """Number the terms of `title text` of every passage of the input `dataset`, in order of appearance.

    Parameters: `analyzer` and `language`, see `words.check`. Writes terms.ids and terms.offsets.npy (`Ragged`) and
    vocabulary.json (the terms by their number). In memory: a batch of passages and the vocabulary.
    """
    words.check(job.params)
    collection = Collection(job.inputs["dataset"])
    vocabulary: dict[str, int] = {}
    empty = 0

    def passages() -> Iterator[list[list[int]]]:
        """The passages' numbers, a batch at a time."""
        nonlocal empty
        split = words.terms(job.params)
        with Progress(f"bm25s {job.key}", collection.passages, "passages") as progress:
            for batch in collection.batches(ROWS, ("title", "text")):
                texts = (contents(*row) for row in zip(*(c.to_pylist() for c in batch.columns), strict=True))
                made = [[vocabulary.setdefault(term, len(vocabulary)) for term in split(text)] for text in texts]
                empty += sum(not row for row in made)
                progress.add(len(made))
                yield made

    with writing(job) as draft:
        rows, total = write_ragged(draft.folder, NAME, passages(), DTYPE)
        if not vocabulary:
            raise UserError(
                f"{collection.artifact.folder}: no passage has a term under analyzer {job.params['analyzer']}"
            )
        if empty:
            say(f"bm25s {job.key} · warning: {empty:,} passages have no term to index")
        draft.path(VOCABULARY).write_text(json.dumps(list(vocabulary), ensure_ascii=False), encoding="utf-8")
        draft.facts.update(passages=rows, indexed=rows - empty, terms=total, vocabulary=len(vocabulary))
