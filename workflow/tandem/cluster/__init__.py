"""Machines: devices and their leases, several processes, slurm, progress, and faults of the machine."""
