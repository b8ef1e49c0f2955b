"""The stages of a compilation as text: loops, code with its HLO beside it, memory."""
