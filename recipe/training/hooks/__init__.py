"""Our hooks in verl's V1 trainers, as classes to derive a trainer of any mode from."""
