"""The benchmark that kills processes of a run: `checks` of its records, the machine's `processes`, the command."""
