"""What a configuration would cost: operations, time, memory and disk of each stage, before anything runs."""
