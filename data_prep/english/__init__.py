"""The English suite: five skills as a person would ask an instruct model for them."""
