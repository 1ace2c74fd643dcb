"""Generated pages are those that the code generates. `python -m tandem.extras.reference` writes them."""

from pathlib import Path

import pytest

from tandem.config.losses import supervision
from tandem.errors import UserError
from tandem.extras import reference

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["commands", "stages", "losses"])
def test_a_page_is_up_to_date(page):
    content = {
        "commands": reference.render_commands,
        "stages": reference.render_stages,
        "losses": reference.render_losses,
    }[page]()
    assert (ROOT / f"docs/reference/{page}.md").read_text() == content


def squared(scores, mask):
    return scores.square().sum()


def scaled(scores, mask, *, scale=1.0):
    """Scores, scaled."""
    return scale * scores.sum()


@pytest.mark.parametrize(
    ("loss", "line"),
    [
        (squared, "loss mine has no docstring; say its equation and where it is from"),
        (
            scaled,
            "loss mine: no key of a configuration sets its option scale; allowed: margin, temperature",
        ),
    ],
)
def test_a_loss_of_the_tree_that_the_page_cannot_describe_is_named(monkeypatch, loss, line):
    monkeypatch.setattr(supervision, "_entries", supervision._entries | {"mine": loss})
    with pytest.raises(UserError) as error:
        reference.render_losses()
    assert str(error.value) == line


def test_the_cost_table_is_what_estimate_calculates():
    page = reference.render_costs()
    assert (ROOT / reference.COSTS).read_text() == page
    assert "| MS MARCO | `rocketqav2` | 20,956 steps |" in page
