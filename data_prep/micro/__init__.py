"""The micro suite: four small skills, their demonstrations and the micro model."""
