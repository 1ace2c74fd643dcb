"""End a command that writes files, when it gets a signal, as Ctrl-C does."""

import signal


def end_by_signals() -> None:
    """Make SIGTERM and SIGHUP end this process as Ctrl-C does, so that files it was writing are removed."""
    heeded = [
        number
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) != signal.SIG_IGN  # `nohup` sets it
    ]

    def end(number: int, _: object) -> None:
        for other in heeded:  # a terminal that is closed sends several
            signal.signal(other, signal.SIG_IGN)
        raise KeyboardInterrupt(number)

    for number in heeded:
        signal.signal(number, end)
