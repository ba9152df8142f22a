"""Checks of the GPU path on one machine: scripts/gpu_check.sh."""
