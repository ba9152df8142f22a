"""Plug-in that verl loads in every process that imports it (entry point ``verl.plugins``): keep it light.

verl only imports this module and swallows its exceptions, so `python -m recipe.preflight` asserts that the names
below are in verl's registries.
"""

import workers.cpu.verl_platform  # noqa: F401  (registers the platform named cpu)
