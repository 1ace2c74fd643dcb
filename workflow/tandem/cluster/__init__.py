"""Run on machines: lease devices, start processes, talk to slurm, report progress, explain faults of the machine."""
