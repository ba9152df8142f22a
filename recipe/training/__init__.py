"""The trainer and what surrounds it: settings, protocol, agents, registration with verl."""
