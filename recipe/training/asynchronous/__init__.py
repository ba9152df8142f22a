"""verl's asynchronous trainers with our hooks: generation goes on while the trainer updates."""
