"""Studies: several commands in order, on one model and one set of rows (`python -m recipe.study`, scripts/)."""
