"""How Inductor is entered, and what of it is changed meanwhile."""
