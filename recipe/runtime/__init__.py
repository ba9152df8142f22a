"""The surroundings of a run: the Ray session, the console, the watch over its processes, multiruns."""
