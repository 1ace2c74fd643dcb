"""The command `fidelity`."""

from tandem.commands import STEPS, Command, register_command

register_command(
    Command(
        "fidelity",
        "contrib.fidelity.comparison:write_fidelity",
        STEPS,
        "How well reduced datasets rank checkpoints.",
    )
)
