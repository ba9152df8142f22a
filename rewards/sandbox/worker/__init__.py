"""The process of one slot: forks a child for each program and judges its results."""
