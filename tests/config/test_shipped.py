"""Every file of config/ loads, names its schema, and fits it; the generated files are those of the models."""

import json
import re
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from tandem.config.base import Section
from tandem.config.loading import load_settings, read_bands, read_layout, read_section
from tandem.config.merging import gathered, shipped_entries
from tandem.config.settings import Settings
from tandem.config.table_layouts import LAYOUT_FILES
from tandem.extras.reference_pages import generated, list_entries, list_files

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "config"
CONFIGURATIONS = sorted([*CONFIG.glob("*.yaml"), *CONFIG.glob("small/*.yaml")])
BANDS = CONFIG / "papers/bands.yaml"
SCHEMA = re.compile(r"# yaml-language-server: \$schema=(.*)\n")
FOLDERS = (
    "",
    "small",
    "recipes",
    "datasets",
    "encoders",
    "indexes",
    "rerankers",
    "papers",
    "papers/*",
    "statistics",
)
FOLDERS += ("sweeps",)
ALL = sorted(
    path for folder in FOLDERS for path in CONFIG.glob(f"{folder}/*.yaml".removeprefix("/"))
)
ALL += sorted(ROOT.glob("workflow/tandem/contrib/*/config/*/*.yaml"))


def named(path):
    return str(path.relative_to(CONFIG if path.is_relative_to(CONFIG) else ROOT))


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=named)
def test_configurations_load(path):
    assert load_settings(gathered([path], ROOT), ROOT).dataset


@pytest.mark.parametrize("path", sorted(CONFIG.glob("recipes/*.yaml")), ids=named)
def test_recipes_load_alone(path):
    """A recipe that takes over another's models names that recipe itself."""
    config = {"dataset": "pydocs", "encoder": "minilm", "recipes": [path.stem]}
    settings = load_settings(config, ROOT)
    assert settings.models or settings.section("generations", dict)


@pytest.mark.parametrize("path", sorted({*CONFIG.glob("papers/**/*.yaml")} - {BANDS}), ids=named)
def test_layouts_load(path):
    assert read_layout(path).rows


def test_bands_and_sweeps_load():
    assert read_bands(BANDS)
    assert all(
        read_section(LAYOUT_FILES["sweep"][0], path).grid for path in CONFIG.glob("sweeps/*.yaml")
    )


def test_catalogues_are_part_of_every_configuration():
    settings = load_settings({"dataset": "pydocs", "encoder": "minilm"}, ROOT)
    for name in ("datasets", "encoders", "indexes", "rerankers"):
        assert list(shipped_entries(ROOT, name)) == list(getattr(settings, name))


@pytest.mark.parametrize("path", ALL, ids=named)
def test_files_fit_the_schema_that_they_name_for_editors(path):
    text = path.read_text()
    named_schema = SCHEMA.match(text)
    assert named_schema
    schema = json.loads((path.parent / named_schema[1]).read_text())
    Draft202012Validator(schema).validate(yaml.safe_load(text))


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ({"seed": -1}, "minimum"),
        ({"models": {"m": {"train": {"lrr": 1}}}}, "lrr"),
        ({"models": {"m": {"train": {"loss": "triplet"}}}}, "triplet"),
        ({"datasets": {"m": {"source": "beer"}}}, "beer"),
        ({"sparse": {"m": {"rm3": {"fb_docs": 99}}}}, "fb_docs"),
    ],
)
def test_the_schema_of_configurations_refuses_mistakes(content, part):
    schema = json.loads((CONFIG / "schema/configuration.json").read_text())
    assert part in " ".join(map(str, Draft202012Validator(schema).iter_errors(content)))


def test_generated_files_are_those_of_the_models():
    """`make reference` writes them anew."""
    pages = generated()
    assert "docs/configuration.md" in pages
    assert [name for name, text in pages.items() if (ROOT / name).read_text() != text] == []


def sections(section=Section):
    for inner in section.__subclasses__():
        yield inner
        yield from sections(inner)


def test_every_key_has_a_description_and_every_section_a_docstring():
    models = {
        Settings,
        *(entry for entries in list_entries().values() for entry in entries),
        *(s for s, _ in list_files().values()),
    }
    assert models <= set(sections())
    for section in set(sections()):
        if section.__module__.startswith("tandem.config") and not section.__name__.startswith("_"):
            assert section.__doc__, section
            missing = [
                name for name, field in section.model_fields.items() if not field.description
            ]
            assert set(missing) <= {"source", "type"}, section


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=named)
def test_what_lies_in_a_folder_is_said_to_be_had_somewhere(path):
    """Who lacks it reads that in the last line; a page of docs/ that is named is there."""
    config = yaml.safe_load(path.read_text())
    notes = [entry.get("where") for entry in config.get("datasets", {}).values() if "path" in entry]
    notes += [
        entry.get("obtain") for entry in config.get("encoders", {}).values() if "path" in entry
    ]
    assert all(notes)
    for page in re.findall(r"docs/\S+\.md", " ".join(notes)):
        assert (ROOT / page).is_file()
