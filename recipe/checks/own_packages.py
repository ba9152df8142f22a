"""Import this module first: it exits if Python finds another checkout's packages, before their imports can fail."""

from recipe.checks.packages import refuse_foreign

refuse_foreign()
