"""What an evaluation is made of: protocols, servers, samples, metrics, the output folder."""
