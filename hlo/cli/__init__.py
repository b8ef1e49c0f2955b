"""The commands hlo-opt and hlo-run: options in, one driver or tool call, text out."""
