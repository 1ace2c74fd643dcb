"""The commands `search` and `export`."""

from tandem.commands import RUN, Command, register_command

register_command(
    Command(
        "search",
        "contrib.demo.search:search_system",
        RUN,
        "The best passages for a query, with scores.",
        reads=True,
        takes_query=True,
    )
)
register_command(
    Command(
        "export",
        "contrib.demo.export:export",
        RUN,
        "A dual encoder and its index for FAISS and transformers.",
    )
)
# started by `search`
register_command(Command("search-worker", "contrib.demo.workers:main", RUN))
