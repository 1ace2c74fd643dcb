"""From a configuration to the graph of stages; each module imports only those below it."""
