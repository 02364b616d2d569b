"""The contents of an exported program: inputs, outputs, constants and guards."""
