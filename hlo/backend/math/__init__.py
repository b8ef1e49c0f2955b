"""Mathematical functions as vector IR, each with a stated error bound."""
