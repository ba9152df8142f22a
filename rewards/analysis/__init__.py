"""Static analysis of programs: equality up to idle code and names, imports, hard-coded answers."""
