"""Toy problems with known answers: credit and projection without a language model."""
