"""Records of runs: run directories, reports and figures."""
