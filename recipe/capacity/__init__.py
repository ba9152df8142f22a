"""What a run needs before it starts: memory on each device, and batch sizes that divide."""
