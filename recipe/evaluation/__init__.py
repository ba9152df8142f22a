"""Parts of an evaluation: budgets, servers, samples, metrics, the output folder."""
