"""Small programs beside the commands."""
