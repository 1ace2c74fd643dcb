"""The domains of a dataset's passages: domains.parquet, if its source has domains."""

from array import array
from itertools import islice

import numpy as np
import pyarrow as pa

from tandem.data import tables
from tandem.data.collection import CORPUS
from tandem.data.sources import Source
from tandem.data.validate import TextHashes, Warnings, require_unique
from tandem.errors import UserError
from tandem.store.job import Draft

DOMAINS = "domains.parquet"  # the domain is empty for passages without one
DOMAINS_SCHEMA = pa.schema([("doc_id", pa.string()), ("domain", pa.string())])


def write_domains(
    checksum: tables.Checksum,
    source: Source,
    passages: TextHashes,
    draft: Draft,
    warnings: Warnings,
) -> dict[str, int]:
    """Write the domain of every passage to domains.parquet, unless the source has none; return passages per domain.

    Raises:
        UserError: a passage has two domains, or none of the passages with a domain is in the corpus.
    """
    numbers: dict[str, int] = {}  # domain → its number, by first appearance
    labelled = TextHashes()  # passages that have a domain
    labels = array("i")  # the number of each labelled passage's domain
    for ids, domains in tables.split_columns(checksum.of(source.read_domains())):
        labelled.add(ids)
        for domain in domains:
            labels.append(numbers.setdefault(domain, len(numbers)))
    if not numbers:
        return {}

    def get_id(row: int) -> str:
        doc, _ = next(islice(source.read_domains(), row, None))
        return doc

    require_unique("document", "domains", labelled, get_id)
    rows = labelled.rows(passages)
    known = int((rows >= 0).sum())
    if not known:
        doc, _ = next(source.read_domains())
        raise UserError(
            f"domains: none of the {len(labelled):,} ids is a passage's, the first is {doc}; mend the ids"
        )
    warnings.count(len(labelled) - known, "domains are of passages that the corpus lacks")
    warnings.count(len(rows) - known, "passages have no domain")

    names = [*numbers, ""]
    # Row -1, of a passage without a domain, selects the appended number, which is that of the last name.
    of_passages = np.append(np.frombuffer(labels, np.intc), len(numbers))[rows]
    docs = tables.stream_rows(draft.path(CORPUS), "doc_id")
    named = ((doc, names[number]) for (doc,), number in zip(docs, of_passages, strict=True))
    batches = tables.make_batches(named, DOMAINS_SCHEMA)
    tables.write_batches(draft.path(DOMAINS), batches, DOMAINS_SCHEMA)
    counts = np.bincount(of_passages, minlength=len(names))
    return {name: int(counts[numbers[name]]) for name in sorted(numbers)}
