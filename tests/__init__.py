"""Tests, in folders that mirror the packages; e2e/ holds the runs of the real stack."""
