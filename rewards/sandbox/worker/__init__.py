"""The process of one slot: it forks a child for each program, and judges what the child does."""
