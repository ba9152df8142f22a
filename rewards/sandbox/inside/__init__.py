"""What runs in the program's process and in the judge's. Standard library only."""
