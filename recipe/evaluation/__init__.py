"""Parts of an evaluation: budgets, servers, samples, metrics, the output folder."""


class ServerError(RuntimeError):
    """A server is not usable, or all have failed; the message is for the user."""
