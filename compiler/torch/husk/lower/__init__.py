"""From the lines of Inductor's wrapper to the statements of a variant."""
