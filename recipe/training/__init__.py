"""The trainer and its parts: schedule, credit, protection, agents, registration with verl."""
