"""Code of the program's process and of the judge's process. Standard library only."""
