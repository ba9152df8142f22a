"""Hydra configuration of the project (found on the search path as pkg://configs)."""
