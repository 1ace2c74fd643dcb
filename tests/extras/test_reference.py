"""Generated pages are those that the code generates. `python -m tandem.extras.reference` writes them."""

from pathlib import Path

import pytest

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


def test_the_cost_table_is_what_estimate_calculates():
    page = reference.render_costs()
    assert (ROOT / reference.COSTS).read_text() == page
    assert "| MS MARCO | `rocketqav2` | 20,956 steps |" in page
