"""The HTTP server and its pool of workers."""
