"""HLO text in editors: the standard form, completion, and the language server."""
