"""The command `estimate`: operations, time, memory and disk of every stage of a configuration on a machine."""
