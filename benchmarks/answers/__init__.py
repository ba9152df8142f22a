"""What reading an answer costs: hostile texts, and the patterns that read them."""
