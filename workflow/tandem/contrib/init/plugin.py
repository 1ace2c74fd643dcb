"""The command `init`."""

from tandem.commands import RUN, Command, register_command

register_command(
    Command(
        "init",
        "contrib.init.first_configuration:write_first_configuration",
        RUN,
        "Write a configuration for data of your own.",
    )
)
