"""The error of this package."""


class PretrainedError(ValueError):
    """The model can't be made or used; the message says why and how to fix it."""
