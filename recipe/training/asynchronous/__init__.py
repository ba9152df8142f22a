"""verl's asynchronous trainers with our hooks: generation continues while the trainer updates."""
