"""Toy problems with known answers, in numpy: credit and projection without a language model."""
