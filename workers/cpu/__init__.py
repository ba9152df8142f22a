"""What makes verl and vLLM fast on a machine without an accelerator."""
