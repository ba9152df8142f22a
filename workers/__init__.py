"""What runs inside the actor processes of verl: credit, projection, the CPU platform."""
