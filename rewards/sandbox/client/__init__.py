"""The client: it finds a server, sends programs and reads what became of them."""
