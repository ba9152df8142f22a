"""The surroundings of a run: the Ray session, the console, the watch over its processes, multiruns."""

import signal

TERMINATED = 128 + signal.SIGTERM
"""Exit status of a command that SIGTERM ended, as shells report it, and of a run that was stopped on request."""
