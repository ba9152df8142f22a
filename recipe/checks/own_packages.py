"""Refuses the packages of another checkout as soon as it is imported: before an import of theirs can fail."""

from recipe.checks.packages import refuse_foreign

refuse_foreign()
