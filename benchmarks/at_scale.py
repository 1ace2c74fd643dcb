"""The whole graph on a generated collection of MS MARCO's size, and each stage's costs next to their estimates.

    python benchmarks/at_scale.py FOLDER [--share 0.01] [--cores 2] [--hardware cpu] [--out FILE]

The script writes the collection, two small networks and the configuration `at_scale.yaml` into FOLDER. If it is run
again, Snakemake resumes. `--share 1` has 8,841,823 passages, 50,000 of 502,939 training queries and 6,980 dev queries.
An encoder without layers (the mean of 64 numbers per word) and a cross-encoder of one layer take the place of real
networks, so that everything else is measured. The judge of the denoised lists scores the lists of a tenth of the
training queries. `--out` writes the table as Markdown: seconds, peak memory and bytes of each stage, each with
measured ÷ estimated for `--hardware`.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from generated import escaped, generate, vocabulary

from tandem.config.merging import gathered
from tandem.data.fetch import format_bytes
from tandem.extras.estimate.estimate import estimate_stages, list_table_stages, new_setting
from tandem.extras.estimate.resources import MIB, Hardware
from tandem.extras.plan import FullPlan
from tandem.plan.graph import upstream_first
from tandem.store.artifact import MANIFEST

ROOT = Path(__file__).parents[1]
PASSAGES, TRAIN, USED, DEV = 8_841_823, 502_939, 50_000, 6_980
SIZE = 64  # numbers per word
HEAD = (
    "stage",
    "seconds",
    "estimate",
    "÷ estimate",
    "peak MiB",
    "÷ estimate",
    "bytes",
    "÷ estimate",
)
SYSTEMS = ("bm25", "m_d0", "m_d1", "bm25+m_c", "rrf")
LAYOUT = {
    "title": "Systems at scale",
    "baseline": {"system": "bm25"},
    "columns": [{"measure": measure} for measure in ("RR@10", "nDCG@10", "R@1000")],
    "rows": [{"system": run, "run": run} for run in SYSTEMS],
}


def main() -> None:
    """Generate missing inputs, run the graph, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "folder", type=Path, help="where collection, networks and configuration are or will be"
    )
    parser.add_argument(
        "--share", type=float, default=0.01, help="of MS MARCO's passages and queries"
    )
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument(
        "--hardware", default="cpu", help="entry of config/hardware/ that the estimates are for"
    )
    parser.add_argument("--out", type=Path, help="also write the table to this Markdown file")
    options = parser.parse_args()
    folder = options.folder.resolve()
    configuration = folder / "at_scale.yaml"
    text = yaml.safe_dump(settings(folder, options.share), sort_keys=False)
    if not configuration.is_file():
        prepare(folder, options.share)
        (folder / "systems.yaml").write_text(yaml.safe_dump(LAYOUT, sort_keys=False))
        configuration.write_text(text)
    elif configuration.read_text() != text:
        sys.exit(f"{configuration} is of another --share; give that one or another folder")
    targets = ["all", "index_tradeoffs"]
    done = subprocess.run(
        ["snakemake", "--cores", str(options.cores), *targets, "--configfile", str(configuration)],
        cwd=ROOT,
    )
    if done.returncode:
        sys.exit(done.returncode)
    table = "\n".join(lines(configuration, options.hardware))
    print(table)
    if options.out:
        options.out.write_text(
            f"# The whole graph at {options.share:g} of MS MARCO's size\n\n{table}\n",
            encoding="utf-8",
        )


def prepare(folder: Path, share: float) -> None:
    """Write the collection and the two networks."""
    sizes = {"train": round(TRAIN * share), "dev": round(DEV * share)}
    generate(folder / "collection", round(PASSAGES * share), sizes)
    network(folder / "words", layers=0)
    network(folder / "pairs", layers=1)


def network(folder: Path, layers: int) -> None:
    """Write a BERT with random weights and the collection's words as its vocabulary."""
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    from transformers import BertConfig, BertModel, BertTokenizerFast

    torch.manual_seed(layers)
    normalizer, splitter = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    pieces = {
        piece: None
        for word in escaped(vocabulary())
        for piece, _ in splitter.pre_tokenize_str(normalizer.normalize_str(word))
    }
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    terms = {term: number for number, term in enumerate(dict.fromkeys([*special, *pieces]))}
    tokenizer = BertTokenizerFast(
        tokenizer_object=Tokenizer(models.WordPiece(terms, unk_token="[UNK]")), vocab=terms
    )
    tokenizer.save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(terms),
        hidden_size=SIZE,
        num_hidden_layers=layers,
        num_attention_heads=1,
        intermediate_size=2 * SIZE,
    )
    BertModel(config).save_pretrained(folder)


def settings(folder: Path, share: float) -> dict[str, Any]:
    """Return the configuration: BM25, two dual encoders (one denoised), a cross-encoder, a fusion and two indexes."""
    counts = {
        name: round(n * share)
        for name, n in (("passages", PASSAGES), ("train", TRAIN), ("dev", DEV))
    }
    collection = {
        "source": "beir",
        "path": str(folder / "collection"),
        "train_queries": round(USED * share),
    }
    collection["counts"] = counts
    pooled = {"pooling": "mean", "normalize": True, "temperature": 0.05}
    lists = {
        "choose": "last",
        "loss": "listwise",
        "lr": 1.0e-3,
        "steps": 50,
        "queries_per_batch": 64,
        "list_size": 4,
        "warmup": 0.1,
    }
    dual = {
        "objective": "dual",
        "shared": True,
        "train": lists,
        "candidates": {"from": "bm25", "depth": 100},
    }
    judged = {"by": "m_c", "negative_below": 0.9, "positive_above": None}
    denoised = {
        "from": "m_d0",
        "depth": 200,
        "queries": round(USED * share / 10),
        "denoise": judged,
    }
    return {
        "dataset": "at_scale",
        "datasets": {"at_scale": collection},
        "encoder": "words",
        "encoders": {
            name: {"source": "folder", "path": str(folder / name), **pooled}
            for name in ("words", "pairs")
        },
        "recipes": [],
        "models": {
            # without the models of config/config.yaml
            **dict.fromkeys(("de_bm25neg", "ce_bm25neg", "ce_deneg", "rocketqav2")),
            "m_d0": dual,
            "m_c": {
                "objective": "cross",
                "init": "pairs",
                "candidates": {"from": "m_d0", "depth": 200},
                "train": {**lists, "loss": "pointwise"},
            },
            "m_d1": {**dual, "candidates": denoised},
        },
        "fusions": {"rrf": {"of": ["bm25", "m_d0"]}},
        "tables": [str(folder / "systems.yaml")],
        "depth": {"train": 200, "dev": 1000},
        "rerank": {"depth": 20},
        "lengths": {"query": 32, "passage": 128},
        "tradeoffs": {
            "model": "m_d0",
            "queries": 1000,
            "k": [10, 100],
            "indexes": ["graph", "ivf_pq"],
        },
        # a sixth of the work of the default graph
        "indexes": {"graph": {"type": "hnsw", "m": 16, "ef_construction": 64}},
    }


def lines(configuration: Path, machine: str) -> list[str]:
    """Return the lines of the table: one for each stage, upstream first."""
    plan = FullPlan(gathered([configuration], ROOT), ROOT)
    hardware = Hardware.load(ROOT / "config/hardware", machine)
    stages = upstream_first([*list_table_stages(plan), plan.tradeoffs()])
    costs = estimate_stages(stages, new_setting(plan.settings, hardware), hardware)
    rows = [f"| {' | '.join(HEAD)} |", f"|---|{'--:|' * (len(HEAD) - 1)}"]
    for stage, cost in costs.items():
        manifest = json.loads((ROOT / stage.folder / MANIFEST).read_text())
        seconds, memory = manifest["seconds"], manifest["peak_memory_mib"]
        size = sum(file["bytes"] for file in manifest["files"].values())
        cells = [f"{seconds:,.1f}", f"{cost.wall:,.1f}", f"{seconds / cost.wall:.2f}"]
        cells += [f"{memory:,.0f}", f"{memory * MIB / cost.memory:.2f}", format_bytes(size)]
        cells.append(f"{size / cost.disk:.2f}" if cost.disk else "")
        rows.append(f"| {stage.kind} {stage.name} | {' | '.join(cells)} |")
    return rows


if __name__ == "__main__":
    main()
