"""Code that runs inside verl's actor processes: credit, projection, the CPU platform."""
