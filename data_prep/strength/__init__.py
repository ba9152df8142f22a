"""How strong the tests of a task are: wrong programs, new inputs, and the share of wrong programs that tests reject."""
