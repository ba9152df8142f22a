"""Parts of an evaluation: protocols, servers, samples, metrics, the output folder."""
