"""Capacity planning before a run starts: memory on each device, and batch sizes that divide."""

ADAPTATIONS = ("lora", "full")
"""The files of configs/adaptation that suit any model: plans and checks of GPUs are made for each."""
