"""Isolation layers between a program and the machine."""
