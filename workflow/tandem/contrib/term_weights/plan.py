"""The search by weights of terms."""

from typing import Any

from tandem.plan.context import Context, search
from tandem.plan.graph import Stage
from tandem.plan.searches import search_terms


@search("unicoil")
@search("uhd")
@search("spade")
def search_own_terms(ctx: Context, *how: Any) -> Stage:
    """Plan the search as `search_terms` does."""
    return search_terms(ctx, *how)
