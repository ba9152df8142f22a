"""Verifiers of graph tasks: six NP-hard ones and four polynomial ones, in modules by the form of their answers."""
