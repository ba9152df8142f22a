"""Small problems with known answers, in numpy: credit and projection seen without a language model."""
