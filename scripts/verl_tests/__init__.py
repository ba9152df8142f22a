"""verl's own tests of what this plug-in overrides, run with our classes in place of verl's."""
