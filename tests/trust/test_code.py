"""What must not stand in the code: pickle in any form, loaders that would run what they load, unquoted shell values."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*(ROOT / "workflow").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")])
RULES = sorted((ROOT / "workflow").rglob("*.smk"))
MODULES = {
    "pickle",
    "cPickle",
    "_pickle",
    "dill",
    "cloudpickle",
    "joblib",
    "shelve",
    "marshal",
    "jsonpickle",
}
FRAMES = {f"{verb}_pickle" for verb in ("read", "to")}
CALLS = {
    "torch.load", "torch.save", "torch.jit.load", "torch.hub.load", "yaml.unsafe_load", "yaml.full_load",
    "os.system", "os.popen", "eval", "exec",
}  # fmt: skip
# placeholders of shell lines that are quoted already, or numbers, or written in the rules themselves
QUOTED = {
    "params.args", "resources.how", "resources.with_plugins", "resources.start", "threads", "wildcards.kind",
    "wildcards.shard", "wildcards.shards", "params.command", "params.sheet",
}  # fmt: skip


def called(node: ast.Call) -> str:
    """`module.function` of a call, as it is written."""
    return ast.unparse(node.func)


def faults(source: str) -> list[str]:
    """What a module does that no module here may."""
    problems = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = (
                [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else [alias.name for alias in node.names]
            )
            problems += [
                f"{node.lineno}: imports {name}" for name in names if name.split(".")[0] in MODULES
            ]
        if not isinstance(node, ast.Call):
            continue
        name, args = called(node), {word.arg: ast.unparse(word.value) for word in node.keywords}
        if name in CALLS or name.rpartition(".")[2] in FRAMES:
            problems.append(f"{node.lineno}: {name}")
        if name in ("np.load", "numpy.load") and args.get("allow_pickle") != "False":
            problems.append(f"{node.lineno}: {name} without allow_pickle=False")
        if (
            args.get("allow_pickle") == "True"
            or args.get("shell") == "True"
            or args.get("weights_only") == "False"
        ):
            problems.append(f"{node.lineno}: {ast.unparse(node)}")
        if "trust_remote_code" in args and args["trust_remote_code"] != "False":
            problems.append(f"{node.lineno}: trust_remote_code is {args['trust_remote_code']}")
        # `BaseLoader` makes texts, lists and mappings alone
        safe = ("LOADER", "yaml.BaseLoader")
        if name == "yaml.load" and not any(loader in ast.unparse(node) for loader in safe):
            problems.append(f"{node.lineno}: yaml.load without the safe loader")
    return problems


def test_no_module_reads_or_writes_pickle_or_runs_what_it_reads():
    assert len(SOURCES) > 200
    assert {
        str(path.relative_to(ROOT)): problems
        for path in SOURCES
        if (problems := faults(path.read_text()))
    } == {}


@pytest.mark.parametrize(
    "line",
    [
        *(f"import {module}" for module in sorted(MODULES)),
        *(f"from {module} import load" for module in sorted(MODULES)),
        *(f"{call}(p)" for call in sorted(CALLS)), *(f"frame.{call}(p)" for call in sorted(FRAMES)),
        "np.load(p)", f"np.load(p, allow_pickle={True})", "subprocess.run(line, shell=True)",
        "AutoModel.from_pretrained(p, trust_remote_code=True)", "yaml.load(text)",
    ],
)  # fmt: skip
def test_the_check_sees_each(line):
    assert faults(line)


def placeholders(line):
    """What Snakemake fills into a shell line."""
    return re.findall(r"(?<!\{)\{([^{}]+)\}(?!\})", line)


def is_quoted(placeholder):
    return placeholder.endswith(":q") or placeholder in QUOTED


def test_whatever_a_shell_line_takes_is_quoted():
    unquoted, lines = {}, 0
    rules = {str(path.relative_to(ROOT)): path.read_text() for path in RULES}
    named = {
        name: line
        for text in rules.values()
        for name, line in re.findall(r"^([A-Z]+) = (\".*\")$", text, re.M)
    }
    named = {name: line for name, line in named.items() if "python -P -m tandem" in line}
    for name, text in rules.items():
        for block in re.findall(r"shell:\n((?: +f?\".*\"\n?)+| +[A-Z]+\n)", text):
            lines += 1
            held = placeholders(named.get(block.strip(), block))
            assert held, (name, block)
            if loose := [value for value in held if not is_quoted(value) and value not in named]:
                unquoted[name] = loose
    for name, line in named.items():
        if loose := [value for value in placeholders(line) if not is_quoted(value)]:
            unquoted[name] = loose
    # one line serves all stages
    assert lines == sum(text.count("shell:\n") for text in rules.values()) > 10
    assert unquoted == {}


def test_every_rule_and_profile_says_what_it_runs_in_one_way():
    # `run:` blocks may call shell(), whose values are quoted like those of shell lines
    for path in RULES:
        for line in re.findall(r"shell\((.*)\)", path.read_text()):
            assert all(value.endswith(":q") for value in re.findall(r"\{([^{}]+)\}", line)), (
                path.name,
                line,
            )
