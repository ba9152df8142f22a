"""The client: finds a server, sends programs and reads their results."""
