"""What a run leaves behind: its directory, documents and pictures."""
