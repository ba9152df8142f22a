"""Capacity planning before a run starts: memory on each device, and batch sizes that divide."""
